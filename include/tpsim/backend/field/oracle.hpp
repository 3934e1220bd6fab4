// SPDX-License-Identifier: MIT
// Nonlinear functions of the exact reading: keyed hashes, known only to be functions.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include <tpsim/backend/field/gf61.hpp>
#include <tpsim/core/random.hpp>

namespace tpsim {

/// SipHash-2-4, a keyed pseudo-random function of short byte strings.
/// Source: Aumasson and Bernstein, SipHash: a fast short-input PRF (INDOCRYPT 2012).
class SipHash {
 public:
  constexpr SipHash(std::uint64_t k0, std::uint64_t k1)
      : v_{k0 ^ 0x736f6d6570736575U, k1 ^ 0x646f72616e646f6dU, k0 ^ 0x6c7967656e657261U,
           k1 ^ 0x7465646279746573U} {}

  constexpr void byte(std::uint8_t b) {
    word_ |= std::uint64_t{b} << (8 * (length_++ % 8));
    if (length_ % 8 == 0) compress();
  }
  /// Eight bytes, little-endian.
  constexpr void word(std::uint64_t w) {
    for (unsigned i = 0; i < 8; ++i) byte(static_cast<std::uint8_t>(w >> (8 * i)));
  }
  /// The hash of all bytes so far. Call once.
  [[nodiscard]] constexpr std::uint64_t finish() {
    word_ |= length_ << 56U;
    compress();
    v_[2] ^= 0xffU;
    for (int i = 0; i < 4; ++i) round();
    return v_[0] ^ v_[1] ^ v_[2] ^ v_[3];
  }

 private:
  constexpr void compress() {
    v_[3] ^= word_;
    round();
    round();
    v_[0] ^= word_;
    word_ = 0;
  }
  constexpr void round() {
    auto& [a, b, c, d] = v_;
    a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
    c += d, d = std::rotl(d, 16) ^ c;
    a += d, d = std::rotl(d, 21) ^ a;
    c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
  }

  std::array<std::uint64_t, 4> v_;
  std::uint64_t word_ = 0, length_ = 0;
};

/// The keyed functions of one seed: value(op, x) depends on the seed, the operation's name and the
/// argument alone. Never on rank or place (a consistent permutation of channels is not a fault),
/// and it is never linear or of low degree (such a function would commute with partial sums).
class SipOracle {
 public:
  explicit SipOracle(std::uint64_t seed)
      : k0_(tensor_key(seed, hash_name("oracle key 0"))),
        k1_(tensor_key(seed, hash_name("oracle key 1"))) {}

  /// A value in F; each has probability at most 9/2^64.
  [[nodiscard]] gf61::Element value(std::string_view op, gf61::Element x) const {
    return gf61::reduce(hash(op, x));
  }
  /// A value in F without 0; 2^64 = 8 (p - 1) + 16, so again at most 9/2^64 each.
  [[nodiscard]] gf61::Element nonzero(std::string_view op, gf61::Element x) const {
    return 1 + hash(op, x) % (gf61::p - 1);
  }

 private:
  // The argument is always the last eight bytes: two different (op, x) are two different messages.
  [[nodiscard]] std::uint64_t hash(std::string_view op, gf61::Element x) const {
    SipHash sip(k0_, k1_);
    for (const char c : op) sip.byte(static_cast<std::uint8_t>(c));
    sip.word(x);
    return sip.finish();
  }
  std::uint64_t k0_, k1_;
};

}  // namespace tpsim
