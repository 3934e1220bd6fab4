// SPDX-License-Identifier: MIT
// What is verified: some rank's code (the module), and beside it what that code ought to do (the
// declaration and full()). The two share nothing but the shapes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tpsim/backend/eigen/eigen_backend.hpp>
#include <tpsim/backend/field/field_backend.hpp>
#include <tpsim/backend/symbolic/symbolic_backend.hpp>
#include <tpsim/layers/linear_options.hpp>
#include <tpsim/layout/cut.hpp>
#include <tpsim/layout/row_layout.hpp>
#include <tpsim/verify/group_place.hpp>

namespace tpsim {

/// A tensor as the checkpoint has it, and which logical tensors its rows hold.
struct DiskTensor {
  std::shared_ptr<const StoredTensor> stored;
  RowLayout layout;              ///< labels and the disk rows that hold them
  std::vector<Logical> logical;  ///< one for each part of `layout`
  std::string param;             ///< the parameter that it fills: "qkv_proj.weight"
  [[nodiscard]] FullTensor view() const { return FullTensor(stored); }
};

/// Rows and columns of one logical tensor that each rank must hold, one below the other.
struct DeclaredPart {
  Logical tensor;
  std::string label;             ///< "q", "gate"; "" when the param has one part
  std::vector<Runs> rows, cols;  ///< [rank]: canonical rows and columns, in order
  Index granule = 1;             ///< rows that must stay together: head_dim
  std::string granule_name;      ///< "heads", "kv", the axes' names; "" for single rows
};
/// A parameter and what the ranks must hold of it.
struct DeclaredParam {
  std::string name;
  std::optional<int> tp_dim;  ///< 0 rows, 1 columns, none: whole on every rank
  Shape full_shape;
  std::vector<DeclaredPart> parts;
  std::vector<Index> padding = {};  ///< [rank]: rows below the parts that are no row; empty: none
  Fill fill = Fill::zero;           ///< what they hold: zeros, or the last part's last row

  [[nodiscard]] Index padding_of(std::size_t rank) const {
    return padding.empty() ? 0 : padding[rank];
  }
};
/// Columns of one of full()'s results that each rank must hold, side by side.
struct DeclaredOutput {
  std::size_t result = 0;     ///< index into full()'s results
  std::vector<Runs> columns;  ///< [rank]
  std::string label = {};     ///< "q"; told when there are several
  Index granule = 1;          ///< columns of one head
};
/// Parameters whose rows (or columns) must be the same entries on a rank: gate = up = down's
/// columns, weight = bias rows.
struct Partner {
  std::string param;
  std::size_t part = 0;
  int dim = 0;
  Index unit = 1;  ///< rows or columns that are one entry: head_dim where heads meet
};

/// One rank's code on one backend.
template <class B>
class ModuleOn {
 public:
  using Tensor = typename B::Tensor;
  using Param = typename B::Param;
  virtual ~ModuleOn() = default;
  /// Every parameter under the name that DeclaredParam uses.
  [[nodiscard]] virtual std::vector<std::pair<std::string, Param*>> params() = 0;
  /// Gives one tensor of the checkpoint to the weight_loader. @throws LayoutError
  virtual void load(const DiskTensor& tensor) = 0;
  /// What this rank computes, and what its caller does with it (a sum, a bias left out).
  [[nodiscard]] virtual Tensor forward(const Tensor& x) = 0;
  /// What one of its linear layers makes of x, when the subject has linear_parts().
  [[nodiscard]] virtual Tensor forward_part(std::size_t part, const Tensor& /*x*/) {
    throw LayoutError("the layer has no part " + std::to_string(part));
  }
};

/// One layer with its shape and options, at one tp_size.
class Subject {
 public:
  using Numeric = EigenBackend<float>;
  using Reference = EigenBackend<double>;  ///< only full() runs on it
  virtual ~Subject() = default;

  std::string layer;  ///< "qkv"
  int tp = 1;
  Index tokens = 16;
  GroupPlace place;                   ///< of the ranks among all processes
  std::vector<DiskTensor> tensors;    ///< what the checkpoint holds, in load order
  std::vector<DeclaredParam> params;  ///< what the ranks must hold
  Index input_width = 0;              ///< columns of the whole input
  std::vector<Runs> input_columns;    ///< [rank]: columns of the input that the rank receives
  /// The tokens themselves, of a layer that takes ids; integers do not become random, so a reading
  /// with numbers uses these. Empty: the layer takes none.
  std::vector<Index> token_ids;
  std::vector<DeclaredOutput> outputs;  ///< what the ranks must return
  std::vector<std::vector<Partner>> partners;
  std::optional<QkvShape> heads;  ///< set when query heads must meet their kv heads
  bool linear = true;             ///< no nonlinear function: integers stay integers
  /// How many tokens an exact reading needs to see what tokens do to each other; nothing: a few.
  std::optional<Index> exact_tokens;
  /// The results are ids of chosen columns. Wrong choices may agree by chance: a reading with
  /// numbers bounds no miss.
  bool chooses = false;
  /// Does the first of linear_parts() multiply the input itself?
  bool first_stage_is_input = true;
  /// What the whole group calls, in order; nothing: not judged.
  std::optional<std::vector<CollectiveOp>> collectives;

  /// Rows of the first parameter on all ranks together, with its padding.
  [[nodiscard]] Index padded_to() const {
    if (params.empty()) return 0;
    Index rows = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(tp); ++r) {
      rows += params[0].padding_of(r);
      for (const DeclaredPart& part : params[0].parts) rows += part.rows[r].size();
    }
    return rows;
  }

  /// On a backend that is not among those below, what make_module() of that backend makes.
  template <class B>
  [[nodiscard]] std::unique_ptr<ModuleOn<B>> make(B& b, Communicator& comm) const {
    if constexpr (requires { do_make(b, comm); })
      return do_make(b, comm);
    else
      return make_module(*this, b, comm);
  }
  /// The specification on canonical tensors: one tensor for each result.
  template <class B>
  [[nodiscard]] std::vector<typename B::Tensor> full(B& b, const typename B::Tensor& x,
                                                     const FullParams<B>& t) const {
    return do_full(b, x, t);
  }
  /// Linear layers inside a layer that is not linear, in the order in which they multiply, each as
  /// a subject: its own inputs and outputs around ModuleOn::forward_part of this very module; it
  /// has a logical result for each product that full() makes there. They live no longer than this
  /// subject.
  [[nodiscard]] virtual std::vector<std::unique_ptr<Subject>> linear_parts() const { return {}; }
  /// Rows of the input that the module computes together, pass after pass, when `tokens` come in
  /// several; empty: all at once.
  [[nodiscard]] virtual std::vector<std::vector<Index>> passes(Index /*tokens*/) const {
    return {};
  }
  /// A communicator between the module and its world; null for none. Faults live here.
  [[nodiscard]] virtual std::unique_ptr<Communicator> between(Communicator& /*world*/) const {
    return nullptr;
  }

 protected:
  virtual std::unique_ptr<ModuleOn<SymbolicBackend>> do_make(SymbolicBackend&,
                                                             Communicator&) const = 0;
  virtual std::unique_ptr<ModuleOn<FieldBackend>> do_make(FieldBackend&, Communicator&) const = 0;
  virtual std::unique_ptr<ModuleOn<Numeric>> do_make(Numeric&, Communicator&) const = 0;
  virtual std::vector<SymbolicBackend::Tensor> do_full(
      SymbolicBackend&, const SymbolicBackend::Tensor&,
      const FullParams<SymbolicBackend>&) const = 0;
  virtual std::vector<FieldBackend::Tensor> do_full(FieldBackend&, const FieldBackend::Tensor&,
                                                    const FullParams<FieldBackend>&) const = 0;
  virtual std::vector<Reference::Tensor> do_full(Reference&, const Reference::Tensor&,
                                                 const FullParams<Reference>&) const = 0;
};

/// Implements the virtual functions from two templates of `Derived`:
///   template <class B> std::unique_ptr<ModuleOn<B>> module(B&, Communicator&) const;
///   template <class B> std::vector<typename B::Tensor> meaning(B&, const typename B::Tensor& x,
///   const FullParams<B>&) const;
template <class Derived>
class SubjectOf : public Subject {
  using Numeric = Subject::Numeric;
  using Reference = Subject::Reference;
  [[nodiscard]] const Derived& self() const { return static_cast<const Derived&>(*this); }

 protected:
  std::unique_ptr<ModuleOn<SymbolicBackend>> do_make(SymbolicBackend& b,
                                                     Communicator& c) const override {
    return self().module(b, c);
  }
  std::unique_ptr<ModuleOn<FieldBackend>> do_make(FieldBackend& b, Communicator& c) const override {
    return self().module(b, c);
  }
  std::unique_ptr<ModuleOn<Numeric>> do_make(Numeric& b, Communicator& c) const override {
    return self().module(b, c);
  }
  std::vector<SymbolicBackend::Tensor> do_full(
      SymbolicBackend& b, const SymbolicBackend::Tensor& x,
      const FullParams<SymbolicBackend>& t) const override {
    return self().meaning(b, x, t);
  }
  std::vector<FieldBackend::Tensor> do_full(FieldBackend& b, const FieldBackend::Tensor& x,
                                            const FullParams<FieldBackend>& t) const override {
    return self().meaning(b, x, t);
  }
  std::vector<Reference::Tensor> do_full(Reference& b, const Reference::Tensor& x,
                                         const FullParams<Reference>& t) const override {
    return self().meaning(b, x, t);
  }
};

}  // namespace tpsim
