// SPDX-License-Identifier: MIT
// In rank order: NCCL moves the ranks' tensors, and each rank computes its result of them.
#include "sim/nccl/nccl_tensors.hpp"

#include <algorithm>
#include <exception>

#include <tpsim/comm/detail/perform.hpp>
#include <tpsim/comm/trace.hpp>

namespace tpsim::nccl {

namespace {

cuda::ConstMatrix bytes_at(const void* memory, Index skip, Index bytes) {
  // Two bytes an element at least: what is copied is never odd.
  return {static_cast<const unsigned char*>(memory) + skip, 1, bytes / 2, bytes / 2,
          cuda::Type::bf16};
}
/// Multiples of 4: whatever type the copies take them for.
Index rounded_up(Index bytes) { return (bytes + 3) / 4 * 4; }

}  // namespace

TensorGroup::TensorGroup(cuda::Device device, nccl::Group group, bool native,
                         std::function<bool()> other_failed)
    : device_(std::move(device)),
      group_(std::move(group)),
      native_(native),
      other_failed_(std::move(other_failed)) {
  rank = group_->rank(), size = group_->size();
}

std::unique_ptr<process::Group> TensorGroup::split(int color, int key) {
  nccl::Group part = group_->split(color, key);
  if (part.is_none()) return nullptr;
  return std::make_unique<TensorGroup>(device_, std::move(part), native_, other_failed_);
}

std::string TensorGroup::text_of(const Call& call) const {
  return std::string(tpsim::name(call.op)) + " in " + name + " at " + where(call.at);
}

void TensorGroup::give_up() {
  if (group_) group_->abandon();
  group_.reset();
}

bool TensorGroup::move(const detail::Arrival& mine, std::uint64_t /*job*/) {
  try {
    return moved_by(mine.call);
  } catch (const process::OtherFailed&) {
    return false;
  } catch (const Error&) {
    if (other_failed_()) return false;
    throw;
  }
}

bool TensorGroup::moved_by(const Call& call) {
  if (call.op == CollectiveOp::barrier) {
    (void)told({}, text_of(call));
    return true;
  }
  const TensorOps& ops = *(call.in.tensor != nullptr ? call.in.ops : call.out.ops);
  const auto* own = dynamic_cast<const Ops*>(&ops);
  if (own == nullptr) return packed(call, ops);
  if (native_ && size > 1 && natively(call, *own)) return true;
  return on_device(call);
}

std::vector<TensorGroup::Head> TensorGroup::told(const Head& mine, const std::string& what) {
  const auto bytes = static_cast<Index>(sizeof mine);
  std::vector<Head> all(static_cast<std::size_t>(size));
  const cuda::Device::Buffer sent = device_.array(&mine, bytes);
  const cuda::Device::Buffer received = device_.allocate(bytes * size);
  group_->all_gather(sent.get(), received.get(), bytes, what);
  device_.download(bytes_at(received.get(), 0, bytes * size), all.data());
  return all;
}

bool TensorGroup::receives(const Call& call) const {
  return call.op != CollectiveOp::gather || rank == call.root;
}

cuda::Device::Buffer TensorGroup::gathered(const Call& call, const void* mine, Index bytes,
                                           Index each) {
  const std::string what = text_of(call);
  cuda::Device::Buffer all = device_.allocate(receives(call) ? each * size : 0);
  if (each == 0) return all;
  cuda::Device::Buffer padded = device_.allocate(bytes < each ? each : 0);
  if (padded) {
    device_.fill({padded.get(), 1, each / 2, each / 2, cuda::Type::bf16}, 0);
    if (bytes > 0)
      device_.copy(bytes_at(mine, 0, bytes),
                   {padded.get(), 1, bytes / 2, bytes / 2, cuda::Type::bf16});
  }
  const void* const from = padded ? padded.get() : mine;
  if (call.op == CollectiveOp::gather)
    group_->gather(from, all.get(), each, call.root, what);
  else
    group_->all_gather(from, all.get(), each, what);
  return all;
}

bool TensorGroup::on_device(const Call& call) {
  const auto* x = static_cast<const DeviceTensor*>(call.in.tensor);
  const bool sends = x != nullptr && (call.op != CollectiveOp::broadcast || rank == call.root);
  Head mine;
  if (sends)
    mine = {x->shape().size() * cuda::bytes_of(x->type()), x->shape().rows(), x->shape().cols(),
            static_cast<Index>(x->type())};
  const std::vector<Head> heads = told(mine, text_of(call));
  const auto part = [&](std::size_t r) {
    return std::make_unique<DeviceTensor>(device_, Shape(heads[r].rows, heads[r].cols),
                                          static_cast<cuda::Type>(heads[r].type));
  };
  Tensors tensors;
  const auto keep = [&](std::unique_ptr<DeviceTensor> t) {
    tensors.emplace_back(t.release(), [](void* p) { delete static_cast<DeviceTensor*>(p); });
  };
  if (call.op == CollectiveOp::broadcast) {
    auto t = part(static_cast<std::size_t>(call.root));
    const Index bytes = heads[static_cast<std::size_t>(call.root)].bytes;
    if (bytes > 0)
      group_->broadcast(sends ? x->view().data : t->view().data, t->view().data, bytes, call.root,
                        text_of(call));
    keep(std::move(t));
  } else {
    Index each = 0;
    for (const Head& h : heads) each = std::max(each, rounded_up(h.bytes));
    const cuda::Device::Buffer all = gathered(call, x->view().data, mine.bytes, each);
    for (std::size_t r = 0; receives(call) && r < heads.size(); ++r) {
      auto t = part(r);
      const Index bytes = heads[r].bytes;
      if (bytes > 0)
        device_.copy(bytes_at(all.get(), static_cast<Index>(r) * each, bytes),
                     {t->view().data, 1, bytes / 2, bytes / 2, cuda::Type::bf16});
      keep(std::move(t));
    }
  }
  if (receives(call)) finish(call, tensors);
  return true;
}

bool TensorGroup::packed(const Call& call, const TensorOps& ops) {
  const bool sends =
      call.in.tensor != nullptr && (call.op != CollectiveOp::broadcast || rank == call.root);
  Bytes bytes;
  std::exception_ptr error;
  Head mine;
  try {
    if (sends) bytes = ops.pack(call.in.tensor);
    mine.bytes = static_cast<Index>(bytes.size());
  } catch (...) {
    error = std::current_exception();
    mine.bytes = failed;
  }
  const std::vector<Head> heads = told(mine, text_of(call));
  if (error) std::rethrow_exception(error);
  Index each = 0;
  for (const Head& h : heads) {
    if (h.bytes == failed) return false;
    each = std::max(each, rounded_up(h.bytes));
  }
  bytes.resize(static_cast<std::size_t>(each));
  const cuda::Device::Buffer sent = device_.array(bytes.data(), each);
  Tensors tensors;
  const auto keep = [&](std::size_t r, std::size_t at) {
    tensors.push_back(
        ops.make_unpacked(std::span(bytes).subspan(at, static_cast<std::size_t>(heads[r].bytes))));
  };
  if (call.op == CollectiveOp::broadcast) {
    const cuda::Device::Buffer received = device_.allocate(each);
    group_->broadcast(sent.get(), received.get(), each, call.root, text_of(call));
    device_.download(bytes_at(received.get(), 0, each), bytes.data());
    keep(static_cast<std::size_t>(call.root), 0);
  } else if (const cuda::Device::Buffer all = gathered(call, sent.get(), each, each);
             receives(call)) {
    bytes.resize(static_cast<std::size_t>(each * size));
    device_.download(bytes_at(all.get(), 0, each * size), bytes.data());
    for (std::size_t r = 0; r < heads.size(); ++r) keep(r, r * static_cast<std::size_t>(each));
  }
  if (receives(call)) finish(call, tensors);
  return true;
}

/// @param tensors  of each rank; of a broadcast the root's alone
void TensorGroup::finish(const Call& call, const Tensors& tensors) const {
  detail::Group g(name, std::vector<int>(static_cast<std::size_t>(size)));
  const bool one = call.op == CollectiveOp::broadcast;
  for (int r = 0; r < size; ++r) {
    detail::Arrival& a = g.arrivals[static_cast<std::size_t>(r)];
    a.call = call;
    a.call.in = {call.out.ops, tensors[one ? 0 : static_cast<std::size_t>(r)].get()};
    a.shape = call.out.ops->shape(a.call.in.tensor);
    if (r != rank) a.call.out.tensor = nullptr;
  }
  std::vector<const void*> scratch;
  detail::perform(g, scratch);
}

}  // namespace tpsim::nccl
