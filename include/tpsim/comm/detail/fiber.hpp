// SPDX-License-Identifier: MIT
// Fibers with their own guarded stack, reused from one run to the next.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/context/fiber.hpp>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TPSIM_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(TPSIM_ASAN)
#define TPSIM_ASAN 1
#endif
#ifdef TPSIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tpsim::detail {

/// 1 MiB (Eigen alone puts up to 128 KiB per operand on the stack) above a page that faults.
/// Memory is taken page by page as it is touched.
class FiberStack {
 public:
  static constexpr std::size_t size = std::size_t{1} << 20U;

  FiberStack() : guard_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    void* p = ::mmap(nullptr, guard_ + size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (p == MAP_FAILED) throw_errno();
    base_ = static_cast<std::byte*>(p);
    if (::mprotect(base_, guard_, PROT_NONE) != 0) {
      ::munmap(base_, guard_ + size);
      throw_errno();
    }
  }
  ~FiberStack() {
#ifdef TPSIM_ASAN
    __asan_unpoison_memory_region(bottom(), size);  // the addresses will serve others
#endif
    ::munmap(base_, guard_ + size);
  }
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  [[nodiscard]] std::byte* bottom() const { return base_ + guard_; }
  [[nodiscard]] std::byte* top() const { return bottom() + size; }

 private:
  [[noreturn]] static void throw_errno() {
    throw std::system_error(errno, std::generic_category(), "no memory for a rank's stack");
  }
  std::size_t guard_;
  std::byte* base_ = nullptr;
};

/// The C++ runtime's list of exceptions being handled and its count of those in flight belong to
/// the thread; every fiber needs its own.
struct ExceptionState {
  void* caught = nullptr;
  unsigned int uncaught = 0;

  /// The layout is fixed by the Itanium C++ ABI, section 2.2.2.
  void exchange_with_thread() {
    void* thread = static_cast<void*>(abi::__cxa_get_globals());
    ExceptionState other;
    std::memcpy(&other, thread, sizeof other);
    std::memcpy(thread, this, sizeof other);
    *this = other;
  }
};

/// A worker that runs one job after another on its own stack. `resume` and `suspend` are the only
/// two places where control moves between stacks.
class Fiber {
 public:
  using Job = void (*)(void* argument);

  Fiber()
      : context_(std::allocator_arg,
                 boost::context::preallocated(stack_.top(), FiberStack::size, stack_context()),
                 Keep{}, [this](boost::context::fiber&& back) { return work(std::move(back)); }) {}
  /// The suspended worker is dropped, not unwound: it owns nothing but its stack, and Boost's first
  /// frame, entered before the sanitizer knew this stack, must not be used again.
  /// @pre finished()
  ~Fiber() {}  // NOLINT(modernize-use-equals-default): the union below needs a body
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The fiber that is running on this thread, or null.
  [[nodiscard]] static Fiber* current() { return current_; }
  /// The number given to start(): tells one job from every other.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  [[nodiscard]] bool finished() const { return finished_; }

  /// Sets the next job; resume() runs it. @pre finished()
  void start(Job job, void* argument, std::uint64_t id) {
    job_ = job;
    argument_ = argument;
    id_ = id;
    finished_ = false;
  }
  /// Runs the job until it suspends or ends. Called from outside the fiber; nests.
  void resume() {
    Fiber* const outer = std::exchange(current_, this);
    exceptions_.exchange_with_thread();
#ifdef TPSIM_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_.bottom(), FiberStack::size);
#endif
    context_ = std::move(context_).resume();
#ifdef TPSIM_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    exceptions_.exchange_with_thread();
    current_ = outer;
  }
  /// Back to the caller of resume(). Called from inside the job.
  void suspend() {
#ifdef TPSIM_ASAN
    __sanitizer_start_switch_fiber(&fake_, caller_bottom_, caller_size_);
#endif
    caller_ = std::move(caller_).resume();
    arrived();
  }

 private:
  /// The stack is a member: Boost has nothing to free.
  struct Keep {
    void deallocate(boost::context::stack_context& /*stack*/) noexcept {}
  };
  [[nodiscard]] boost::context::stack_context stack_context() const {
    boost::context::stack_context c;
    c.sp = stack_.top();
    c.size = FiberStack::size;
    return c;
  }
  void arrived() {
#ifdef TPSIM_ASAN
    __sanitizer_finish_switch_fiber(fake_, &caller_bottom_, &caller_size_);
#endif
  }
  boost::context::fiber work(boost::context::fiber&& back) {
    caller_ = std::move(back);
    arrived();
    for (;;) {
      job_(argument_);
      finished_ = true;
#ifdef TPSIM_ASAN
      // frames that an exception skipped leave marks behind
      auto* const here = static_cast<std::byte*>(__builtin_frame_address(0));
      __asan_unpoison_memory_region(stack_.bottom(),
                                    static_cast<std::size_t>(here - stack_.bottom()));
#endif
      suspend();
    }
  }

  inline static thread_local Fiber* current_ = nullptr;

  FiberStack stack_;
  Job job_ = nullptr;
  void* argument_ = nullptr;
  std::uint64_t id_ = 0;
  bool finished_ = true;
  ExceptionState exceptions_;
#ifdef TPSIM_ASAN
  void* fake_ = nullptr;
  const void* caller_bottom_ = nullptr;
  std::size_t caller_size_ = 0;
#endif
  boost::context::fiber caller_;
  union {
    boost::context::fiber context_;
  };
};

/// The fibers of this thread that have no job. Last in, first out: a warm stack is reused first.
class FiberPool {
 public:
  [[nodiscard]] static FiberPool& of_thread() {
    thread_local FiberPool pool;
    return pool;
  }
  [[nodiscard]] std::unique_ptr<Fiber> take() {
    if (idle_.empty()) return std::make_unique<Fiber>();
    std::unique_ptr<Fiber> fiber = std::move(idle_.back());
    idle_.pop_back();
    return fiber;
  }
  /// @pre fiber->finished()
  void give(std::unique_ptr<Fiber> fiber) { idle_.push_back(std::move(fiber)); }
  [[nodiscard]] std::size_t idle() const { return idle_.size(); }

 private:
  std::vector<std::unique_ptr<Fiber>> idle_;
};

}  // namespace tpsim::detail
