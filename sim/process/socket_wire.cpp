// SPDX-License-Identifier: MIT
#include "sim/process/socket_wire.hpp"

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <thread>

#include <boost/asio.hpp>

#include <fmt/format.h>

#include "sim/process/meeting_file.hpp"
#include "sim/process/process_world.hpp"

namespace tpsim::process {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Failure = boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::size_t channels = 4;
constexpr unsigned char bye = 255;
constexpr auto patience = std::chrono::seconds(2);  ///< with one connection that says nothing
constexpr std::array<unsigned char, 1> welcome{1};
/// Before each message: its channel, and its length in 8 bytes.
constexpr std::size_t head_bytes = 9;

}  // namespace

class SocketWire::Network {
 public:
  /// A process at the other end.
  struct Peer {
    explicit Peer(tcp::socket s) : socket(std::move(s)) {}
    tcp::socket socket;
    std::array<unsigned char, head_bytes> head{};
    Bytes body;
    std::array<std::deque<Bytes>, channels> arrived;
    bool open = true;
    bool left = false;  ///< it has said so
  };

  explicit Network(const Meeting& m) : meeting_(m) {
    if (m.size < 1 || m.rank < 0 || m.rank >= m.size)
      throw MeetingError("rank " + std::to_string(m.rank) + " of " + std::to_string(m.size) +
                         " is no rank: they are 0 to size - 1");
    if (m.rank == 0)
      invite();
    else
      join();
    for (auto& p : peers_)
      if (p) listen(*p);
  }
  /// To everybody: this process needs them no more.
  void say_bye() {
    for (std::size_t i = 0; i < peers_.size(); ++i) try {
        if (peers_[i] && peers_[i]->open) write(static_cast<int>(i), bye, {});
      } catch (const std::exception&) {  // it is gone already
      }
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// @throws RemoteError where `to` is gone
  void write(int to, unsigned char channel, std::span<const std::byte> bytes) {
    Peer& p = peer(to);
    if (!p.open) gone(to);
    std::array<unsigned char, head_bytes> head{channel};
    const std::uint64_t size = bytes.size();
    std::memcpy(head.data() + 1, &size, sizeof size);
    bool done = false;
    Failure failed;
    // Reads go on meanwhile: both ends may be writing.
    asio::async_write(p.socket,
                      std::array<asio::const_buffer, 2>{
                          asio::buffer(head), asio::const_buffer(bytes.data(), bytes.size())},
                      [&](const Failure& f, std::size_t) { done = true, failed = f; });
    const auto until = Clock::now() + limit();
    while (!done && Clock::now() < until) {
      io_.restart();
      io_.run_one_until(until);
    }
    if (!done) {  // it takes in nothing: the handler above must not outlive this call
      Failure ignored;
      p.socket.close(ignored);
      while (!done) io_.restart(), io_.run_one();
    }
    if (failed) {
      p.open = false;
      gone(to);
    }
  }
  /// Takes in what has arrived.
  void poll() {
    io_.restart();
    io_.poll();
  }
  [[nodiscard]] Peer& peer(int r) { return *peers_.at(static_cast<std::size_t>(r)); }
  [[nodiscard]] std::size_t count() const { return peers_.size(); }
  [[nodiscard]] bool has(std::size_t r) const { return peers_[r] != nullptr; }
  [[noreturn]] static void gone(int r) {
    throw RemoteError(r, "", "its process ended while the others wait for it");
  }

 private:
  using Time = Clock::time_point;
  /// What the others say first.
  struct Hello {
    Secret secret{};
    std::int32_t rank = 0, size = 0;
  };
  [[nodiscard]] Clock::duration limit() const {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(meeting_.time_limit_s));
  }
  [[nodiscard]] Time end() const { return start_ + limit(); }
  /// Starts an operation and waits for it until then. False where it has failed, or time is over.
  template <class Start>
  bool within(tcp::socket& socket, Time until, const Start& start) {
    bool done = false;
    Failure failed;
    start([&](const Failure& f, auto&&...) { done = true, failed = f; });
    io_.restart();
    while (!done && Clock::now() < until) io_.run_one_until(until);
    if (done) return !failed;
    Failure ignored;
    socket.close(ignored);
    while (!done) {
      io_.restart();
      io_.run_one();
    }
    return false;
  }

  // --- rank 0

  void invite() {
    peers_.resize(static_cast<std::size_t>(meeting_.size));
    if (meeting_.size == 1) return;
    tcp::acceptor acceptor(io_);
    Invitation invitation{own_addresses(), 0, new_secret()};
    try {
      acceptor = tcp::acceptor(io_, tcp::endpoint(tcp::v4(), 0));
      invitation.port = acceptor.local_endpoint().port();
    } catch (const boost::system::system_error& e) {
      throw MeetingError(std::string("rank 0 cannot listen: ") + e.what());
    }
    write_invitation(meeting_.file, invitation);
    try {
      for (int missing = meeting_.size - 1; missing > 0;) {
        tcp::socket socket(io_);
        bool done = false;
        Failure failed;
        acceptor.async_accept(socket, [&](const Failure& f) { done = true, failed = f; });
        io_.restart();
        while (!done && Clock::now() < end()) io_.run_one_until(end());
        if (!done) {
          acceptor.close();
          while (!done) io_.restart(), io_.run_one();
          none_came();
        }
        if (failed)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        else if (welcomed(std::move(socket), invitation.secret))
          --missing;
      }
    } catch (...) {
      std::error_code ignored;
      std::filesystem::remove(meeting_.file, ignored);
      throw;
    }
    std::error_code ignored;
    std::filesystem::remove(meeting_.file, ignored);
  }
  [[noreturn]] void none_came() const {
    std::string missing;
    int count = 0;
    for (std::size_t r = 1; r < peers_.size(); ++r)
      if (!peers_[r] && ++count <= 8) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    if (count > 8) missing += fmt::format(" and {} more", count - 8);
    throw MeetingError(fmt::format("rank 0 has waited {} s at {} for rank {} of {}",
                                   meeting_.time_limit_s, meeting_.file, missing, meeting_.size));
  }
  [[nodiscard]] bool welcomed(tcp::socket socket, const Secret& secret) {
    Hello hello;
    const auto until = std::min(end(), Clock::now() + patience);
    if (!within(socket, until,
                [&](auto f) {
                  asio::async_read(socket, asio::buffer(&hello, sizeof hello), std::move(f));
                }) ||
        hello.secret != secret)
      return false;  // a stranger
    if (hello.size != meeting_.size)
      throw MeetingError("a process says that the job has " + std::to_string(hello.size) +
                         " ranks, rank 0 that it has " + std::to_string(meeting_.size));
    if (hello.rank < 0 || hello.rank >= meeting_.size)
      throw MeetingError("a process says that it is rank " + std::to_string(hello.rank) + " of " +
                         std::to_string(meeting_.size));
    auto& place = peers_[static_cast<std::size_t>(hello.rank)];
    if (hello.rank == 0 || place)
      throw MeetingError("two processes are rank " + std::to_string(hello.rank) + " of this job");
    Failure failed;
    asio::write(socket, asio::buffer(welcome), failed);
    if (failed) return false;
    without_delay(socket);
    place = std::make_unique<Peer>(std::move(socket));
    return true;
  }

  // --- the others

  void join() {
    peers_.resize(1);
    while (true) {
      if (const auto invitation = read_invitation(meeting_.file))
        for (const std::string& address : invitation->addresses)
          if (connected(*invitation, address)) return;
      if (Clock::now() > end())
        throw MeetingError(fmt::format("rank {} of {} has not met rank 0 at {} within {} s",
                                       meeting_.rank, meeting_.size, meeting_.file,
                                       meeting_.time_limit_s));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  [[nodiscard]] bool connected(const Invitation& invitation, const std::string& address) {
    Failure failed;
    const auto number = asio::ip::make_address(address, failed);
    if (failed) return false;
    tcp::socket socket(io_);
    const Hello hello{invitation.secret, meeting_.rank, meeting_.size};
    std::array<unsigned char, 1> answer{};
    const auto until = [&] { return std::min(end(), Clock::now() + patience); };
    if (!within(socket, until(),
                [&](auto f) {
                  socket.async_connect(tcp::endpoint(number, invitation.port), std::move(f));
                }) ||
        !within(socket, until(),
                [&](auto f) {
                  asio::async_write(socket, asio::buffer(&hello, sizeof hello), std::move(f));
                }) ||
        !within(socket, end(),  // rank 0 may be busy with a stranger
                [&](auto f) { asio::async_read(socket, asio::buffer(answer), std::move(f)); }) ||
        answer != welcome)
      return false;
    without_delay(socket);
    peers_[0] = std::make_unique<Peer>(std::move(socket));
    return true;
  }

  // --- both

  static void without_delay(tcp::socket& socket) {
    Failure ignored;
    socket.set_option(tcp::no_delay(true), ignored);
  }
  void listen(Peer& p) {
    asio::async_read(p.socket, asio::buffer(p.head), [this, &p](const Failure& f, std::size_t) {
      std::uint64_t size = 0;
      std::memcpy(&size, p.head.data() + 1, sizeof size);
      p.left = !f && p.head[0] == bye;
      p.open = !f && p.head[0] < channels;
      if (!p.open) return;
      try {
        p.body.resize(size);
      } catch (const std::exception&) {  // no process of this program has sent that
        p.open = false;
        return;
      }
      asio::async_read(p.socket, asio::buffer(p.body), [this, &p](const Failure& g, std::size_t) {
        p.open = !g;
        if (!p.open) return;
        p.arrived[p.head[0]].push_back(std::move(p.body));
        p.body = {};
        listen(p);
      });
    });
  }

  Meeting meeting_;
  Time start_ = Clock::now();
  asio::io_context io_{1};
  std::vector<std::unique_ptr<Peer>> peers_;  ///< of rank 0 [rank], of the others rank 0 alone
};

SocketWire::SocketWire(const Meeting& meeting)
    : rank_(meeting.rank),
      size_(meeting.size),
      time_limit_s_(meeting.time_limit_s),
      network_(std::make_unique<Network>(meeting)) {}
SocketWire::~SocketWire() = default;
void SocketWire::close() { network_->say_bye(); }

void SocketWire::send(int to, Channel channel, std::span<const std::byte> bytes) {
  network_->write(to, static_cast<unsigned char>(channel), bytes);
}

std::optional<Wire::Found> SocketWire::receive(int from, Channel channel) {
  network_->poll();
  for (std::size_t r = 0; r < network_->count(); ++r) {
    if (!network_->has(r) || (from >= 0 && static_cast<int>(r) != from)) continue;
    auto& arrived = network_->peer(static_cast<int>(r)).arrived[static_cast<std::size_t>(channel)];
    if (arrived.empty()) continue;
    Found out{static_cast<int>(r), std::move(arrived.front())};
    arrived.pop_front();
    return out;
  }
  for (std::size_t r = 0; r < network_->count(); ++r)
    if (network_->has(r) && (from < 0 || static_cast<int>(r) == from) &&
        !network_->peer(static_cast<int>(r)).open)
      Network::gone(static_cast<int>(r));
  return std::nullopt;
}

bool SocketWire::told_of_failure() {
  network_->poll();
  const Channel channel = rank_ == 0 ? Channel::to_root : Channel::from_root;
  for (std::size_t r = 0; r < network_->count(); ++r) {
    if (!network_->has(r)) continue;
    const Network::Peer& p = network_->peer(static_cast<int>(r));
    if (!p.open && !p.left) Network::gone(static_cast<int>(r));
    for (const Bytes& told : p.arrived[static_cast<std::size_t>(channel)]) {
      if (told.empty()) continue;
      if (rank_ != 0 && static_cast<FromRoot>(told.front()) == FromRoot::stop)
        throw RemoteError(0, "", "it has ended the job");
      if (rank_ == 0 ? static_cast<ToRoot>(told.front()) == ToRoot::failed
                     : static_cast<FromRoot>(told.front()) == FromRoot::failed)
        return true;
    }
  }
  return false;
}

void SocketWire::watch() {
  // A rank may fail after its part of a collective, which ends then; wait a little for that.
  if (!told_of_failure())
    failure_seen_.reset();
  else if (!failure_seen_)
    failure_seen_ = Clock::now();
  else if (Clock::now() - *failure_seen_ > patience)
    throw OtherFailed();
}

bool SocketWire::has_other_failed() {
  for (const auto until = Clock::now() + 2 * patience; Clock::now() < until;) {
    if (told_of_failure()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

void SocketWire::abort() {
  // The others notice.
  std::_Exit(3);
}

}  // namespace tpsim::process
