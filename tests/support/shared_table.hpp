// SPDX-License-Identifier: MIT
// Files that the ranks of a group share: threads, processes of one machine, or both. They meet at
// one that all map, and each rank leaves in another what the others read.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <tpsim/backend/cuda/cuda_ops.hpp>

namespace tpsim::testing {

class SharedTable {
 public:
  /// Makes the file, or opens it where another rank was first.
  SharedTable(std::string file, int rank, int size)
      : file_(std::move(file)),
        rank_(rank),
        size_(static_cast<std::uint32_t>(size)),
        fd_(::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ < 0) fail("open", errno);
    // Memory for it now: a full disk is an error here, and a SIGBUS at the first access otherwise.
    if (const int why = ::posix_fallocate(fd_, 0, head_bytes); why != 0) fail("allocate", why);
    void* mapped = ::mmap(nullptr, sizeof(Head), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) fail("map", errno);
    head_ = static_cast<Head*>(mapped);
    own_ = ::open(place(rank_).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (own_ < 0) fail("open", errno);
  }
  SharedTable(const SharedTable&) = delete;
  SharedTable& operator=(const SharedTable&) = delete;
  /// The last to leave removes the file. After an abort everybody tries: some may never have come.
  ~SharedTable() {
    ::unlink(place(rank_).c_str());
    ::close(own_);
    if (head_->left.fetch_add(1) + 1 == size_ || aborted_by() >= 0) ::unlink(file_.c_str());
    ::munmap(head_, sizeof(Head));
    ::close(fd_);
  }

  [[nodiscard]] const std::string& file() const { return file_; }

  /// Comes to the next meeting, and does not wait. @return its number, for all_came()
  [[nodiscard]] std::uint32_t come() {
    const std::uint32_t meeting = head_->meeting.load();
    if (head_->came.fetch_add(1) + 1 == size_) {
      head_->came.store(0);  // before anybody can come to the next one
      head_->meeting.fetch_add(1);
    }
    return meeting;
  }
  [[nodiscard]] bool all_came(std::uint32_t meeting) const {
    return head_->meeting.load() != meeting;
  }

  void abort() {
    std::uint32_t nobody = 0;
    head_->aborted.compare_exchange_strong(nobody, static_cast<std::uint32_t>(rank_) + 1);
  }
  /// The first rank that did, or -1.
  [[nodiscard]] int aborted_by() const { return static_cast<int>(head_->aborted.load()) - 1; }

  /// Leaves this rank's bytes for the others, over those of the call before.
  void write(const void* bytes, cuda::Size count) {
    put(0, &count, sizeof count);
    put(count_bytes, bytes, count);
  }
  /// Bytes [first, first + count) of what rank `of` has left.
  void read(int of, cuda::Size first, void* bytes, cuda::Size count) const {
    const int from = of == rank_ ? ::dup(own_) : ::open(place(of).c_str(), O_RDONLY | O_CLOEXEC);
    if (from < 0) throw cuda::Error("cannot open " + place(of) + ": " + std::strerror(errno));
    const struct Close {
      int file;
      ~Close() { ::close(file); }
    } close{from};
    cuda::Size left = 0;
    get(from, 0, &left, sizeof left);
    if (first + count > left)
      throw cuda::Error("rank " + std::to_string(of) + " has left " + std::to_string(left) +
                        " bytes, and bytes " + std::to_string(first) + " to " +
                        std::to_string(first + count) + " are wanted: it calls something else");
    get(from, count_bytes + first, bytes, count);
  }

 private:
  using Word = std::atomic<std::uint32_t>;
  static_assert(Word::is_always_lock_free, "only then does it work between processes");
  struct Head {  // zeros are its beginning
    Word came, meeting, left, aborted;
  };
  static constexpr off_t head_bytes = 4096;
  static constexpr off_t count_bytes = sizeof(cuda::Size);
  [[nodiscard]] std::string place(int rank) const { return file_ + "-" + std::to_string(rank); }

  void put(off_t to, const void* bytes, cuda::Size count) {
    for (cuda::Size done = 0; done < count;) {
      const auto* from = static_cast<const unsigned char*>(bytes) + done;
      const ssize_t n = ::pwrite(own_, from, static_cast<std::size_t>(count - done), to + done);
      if (n > 0)
        done += n;
      else if (errno != EINTR)
        throw cuda::Error("cannot write " + place(rank_) + ": " + std::strerror(errno));
    }
  }
  void get(int file, off_t from, void* bytes, cuda::Size count) const {
    for (cuda::Size done = 0; done < count;) {
      auto* to = static_cast<unsigned char*>(bytes) + done;
      const ssize_t n = ::pread(file, to, static_cast<std::size_t>(count - done), from + done);
      if (n == 0) throw cuda::Error(file_ + " is too short");
      if (n > 0)
        done += n;
      else if (errno != EINTR)
        throw cuda::Error("cannot read " + file_ + ": " + std::strerror(errno));
    }
  }
  [[noreturn]] void fail(const char* what, int why) const {
    if (fd_ >= 0) ::close(fd_);
    throw cuda::Error(std::string("cannot ") + what + " " + file_ + ": " + std::strerror(why));
  }

  std::string file_;
  int rank_;
  std::uint32_t size_;
  int fd_;
  int own_ = -1;
  Head* head_ = nullptr;
};

}  // namespace tpsim::testing
