// SPDX-License-Identifier: MIT
// The static reading of attention over tokens: chunks, caches, and the sequences of a batch.
#include <tpsim/backend/collectives.hpp>

#include <tests/support/attention_heads.hpp>
#include <tests/support/catch.hpp>

namespace attention_tokens_symbolic_tests {

using namespace tpsim;
using namespace tpsim::test;

TEST_CASE("attention: a prompt at once, in chunks, and token by token are one value") {
  for (const int tp : {1, 2, 4})
    for (const bool full_first : {true, false})
      for (const std::vector<Index>& chunks :
           {std::vector<Index>{5}, {2, 3}, {3, 1, 1}, {1, 1, 1, 1, 1}}) {
        SymbolicContext context;
        Heads model;
        model.window = 3;
        model.alibi = true;
        SymbolicTensor expected;
        if (full_first) expected = model.full(context);
        const auto out = run(context, tp, [&](SymbolicBackend& b, Communicator& comm) {
          const Heads rank = model.on(tp, comm.rank());
          std::optional<SymbolicTensor> k, v, y;
          const auto append = [&](std::optional<SymbolicTensor>& to, const SymbolicTensor& more) {
            const std::vector<const SymbolicTensor*> both{to ? &*to : &more, &more};
            to = to ? b.concat(both, 0) : more;
          };
          Index at = 0;
          for (const Index n : chunks) {
            const SymbolicTensor x = b.slice(rank.input(b), 0, at, n);
            append(k, rank.key(b, x));
            append(v, rank.value(b, x));
            append(y, rank.attend(b, rank.query(b, x), *k, *v));
            at += n;
          }
          return all_gather(b, comm, *y, 1);
        });
        if (!full_first) expected = model.full(context);
        require_equal(context, out, expected);
      }
}

TEST_CASE("attention: positions that start anew in a later chunk are told where the cache grows") {
  SymbolicContext context;
  const Heads model;
  (void)model.full(context);
  SymbolicBackend b(context, 0);
  Heads rank = model.on(2, 0);
  const SymbolicTensor x = rank.input(b);
  const SymbolicTensor before = rank.key(b, b.slice(x, 0, 0, 2));
  rank.first_position = -2;
  const SymbolicTensor after = rank.key(b, b.slice(x, 0, 2, 3));
  const std::vector<const SymbolicTensor*> both{&before, &after};
  (void)b.concat(both, 0);
  REQUIRE(context.findings().size() == 1);
  const Finding& f = context.findings()[0];
  CHECK(f.check == "state");
  CHECK(contains(f.message, "tokens are joined that hold different columns"));
  CHECK(contains(f.message, "positions 2 earlier"));
  CHECK(f.cause == "the positions of some tokens do not follow those of the others");
}

TEST_CASE("attention: a cache that does not hold the sequence in order is told") {
  const auto told = [](const std::vector<Index>& q, const std::vector<Index>& k,
                       const std::vector<Index>& v) {
    SymbolicContext context;
    const Heads model;
    (void)model.full(context);
    SymbolicBackend b(context, 1);
    const Heads rank = model.on(2, 1);
    const SymbolicTensor x = rank.input(b);
    const auto rows = [&](SymbolicTensor t, const std::vector<Index>& tokens) {
      t.tokens = {};
      for (const Index token : tokens) t.tokens.append({token, 1, 1});
      return t;
    };
    (void)rank.attend(b, rows(rank.query(b, x), q), rows(rank.key(b, x), k),
                      rows(rank.value(b, x), v));
    return messages(context);
  };
  CHECK(told({3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}).empty());
  CHECK(told({3, 4}, {0, 1, 2, 2, 3}, {0, 1, 2, 2, 3}) ==
        "state: query row 0 is token 3, at its position the cache holds the key of token 2\n");
  CHECK(told({4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 3}) ==
        "state: row 4 of the cache holds the key of token 4 and the value of token 3\n");
  CHECK(told({4}, {0, 1, 3, 4}, {0, 1, 3, 4}) ==
        "state: row 2 of the cache is token 3, after token 1; in its sequence it comes after token "
        "2\n");
  CHECK(told({4}, {1, 2, 3, 4}, {1, 2, 3, 4}) ==
        "state: row 0 of the cache is token 1, first; in its sequence it comes after token 0\n");
}

TEST_CASE("attention: two sequences of a batch keep their own positions and caches") {
  SymbolicContext context;
  const Heads model;
  const auto batch = [&](SymbolicBackend& b, const Heads& h, bool mixed) {
    const SymbolicTensor x = h.input(b);  // tokens 0, 1 and 2, 3, 4
    const std::vector<Index> positions{0, 1, 0, 1, 2};
    const auto rope = [&](const SymbolicTensor& t) { return b.rope(t, positions, 4, h.rope); };
    const SymbolicTensor q = rope(h.project(b, x, h.q_proj, h.first_head() * 4, h.heads() * 4));
    const SymbolicTensor k = rope(h.project(b, x, h.k_proj, h.first_kv() * 4, h.kv_heads() * 4));
    const SymbolicTensor v = h.value(b, x);
    const auto part = [&](const SymbolicTensor& t, Index at, Index n) {
      return b.slice(t, 0, at, n);
    };
    const SymbolicTensor one = h.attend(b, part(q, 0, 2), part(k, 0, 2), part(v, 0, 2));
    const Index from = mixed ? 0 : 2;  // the other sequence in the same cache
    const SymbolicTensor two =
        h.attend(b, part(q, 2, 3), part(k, from, 5 - from), part(v, from, 5 - from));
    const std::vector<const SymbolicTensor*> both{&one, &two};
    return b.concat(both, 0);
  };
  SymbolicBackend full(context, -1), rank(context, 1);
  const SymbolicTensor expected = full.slice(batch(full, model.on(1, -1), false), 1, 8, 8);
  CHECK_FALSE(compare(context, batch(rank, model.on(2, 1), false), expected));
  CHECK(context.findings().empty());
  (void)batch(rank, model.on(2, 1), true);
  CHECK(contains(
      messages(context),
      "state: row 2 of the cache is token 2, after token 1; in its sequence it comes first"));
}

}  // namespace attention_tokens_symbolic_tests
