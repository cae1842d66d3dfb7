// The fact sheet of an attention mechanism, and the registry of them all.
//
// A mechanism's .cpp ends with
//     const Registration registered{Mechanism{.name = "clustered", …}};
// and one word in ops/meson.build compiles it in. The tests, the benchmark, the layers and the apps
// loop over mechanisms(); only presets, and tests of single mechanisms, name one. A shared object
// brings in one from outside the tree, by --plugin (apps/command_line/plugin.h).
//
// Sizes: B batch, N query length, S key length, H heads (or classes), E key width and M value width
// of a head, d model width, N_max the most positions of learnt tensors.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "ops/attention/spec.h"
#include "ops/initializer.h"
#include "runtime/random.h"

namespace weft {

class AttentionPattern;

struct AttentionSizes {
  i64 B = 1, N = 1, S = 1, H = 1, E = 1, M = 1, d = 1;
  i64 N_max = 1;
  bool causal = false;  // a block may have fewer parameters in its causal form
};

// The role of an input, and who provides it in a layer (nn::Attention).
enum class Role {
  projected,  // a learnt map of a sequence: query, key, value, logits; the layer
  sequence,   // the layer's own x, or the memory
  parameter,  // learnt, the same for every sequence; the layer
  drawn,      // random features; the layer keeps them, a call without them draws them
  index,      // choices of positions, i64; the caller
  bias,       // added to the scores; the model or the caller
};
enum class Side { query, reference };  // which of the two sequences (self-attention: the same)

struct AttentionInput {
  std::string name = {};  // "q"
  Role role = Role::projected;
  Side side = Side::query;  // of a parameter: whose positions N_max counts; query: both
  // A word for each axis, "B N H E". A symbol of AttentionSizes is that size, "b" and "h" are that
  // size or 1, the name of an option is its value. Any other word is for display, its number is in
  // `shape`, and larger tensors are accepted if the word names N_max or another max.
  std::string axes = {};
  // The shape for given sizes; empty: the words of `axes` define it.
  Shape shape = {};
  // Projected inputs that name the same matrix are column ranges of one, initialised as one.
  std::string matrix = {};
  // Widths of the hidden layers of the projection, each followed by a bias and ReLU.
  std::vector<i64> through = {};
  Initializer weight = {};  // of the projection's matrices, of a parameter
  bool biased = false;      // the projection adds a vector, initialised by `bias`
  Initializer bias = {};
  bool optional = false;    // may be undefined; a layer makes learnt ones all the same
  bool causal = false;      // for causal calls alone; such inputs come last
  Bounds bounds = {};       // of a parameter
  // Drawn inputs: fills a tensor on the CPU, and after how many training steps it is redrawn (0:
  // never).
  void (*draw)(RandomKey key, const Tensor& target) = nullptr;
  i64 redraw = 0;
};

struct AttentionCall;
struct ChoicePlace;
enum class ChoiceOrder {  // of a choice of integers
  any,
  ascending,    // along the last axis, padded with -1
  permutation,  // of positions, along axis 1 of three
};

// What a mechanism draws or decides and has no gradient: random planes, cluster labels, indices of
// the largest keys, permutations. A call reports it by name (AttentionCall::chosen), and the caller
// can give it instead (AttentionCall::given).
//
// Given choices are checked before anything is computed, and a bad value throws, on a CUDA device
// too: it is copied to the host, which waits for it. Only tests and programs that read files give
// choices. A training step does not: backward uses what forward saved, and the drawn inputs of a
// layer are inputs. So a captured step never waits, and no kernel sees a bad choice. The op
// `gather` (ops/gather), which training steps use, has another rule.
struct AttentionChoice {
  std::string name = {};   // "labels"
  std::string shape = {};  // for display: "B H N"
  bool integer = true;     // i64; otherwise of the inputs' type
  bool accepted = true;    // can be given by the caller
  // For integers that can be given: the sizes of the axes, and the number n of values for an
  // element, which is one of 0 … n − 1. If n is `no_such_element`, for a query beyond the lengths
  // say, any value is valid, and the mechanism is given 0; without the function any value is valid
  // everywhere.
  Shape (*sizes)(const AttentionSpec&, const AttentionSizes&) = nullptr;
  i64 (*values)(const ChoicePlace&) = nullptr;
  ChoiceOrder order = ChoiceOrder::any;
  // Whether a call with these options and masks draws or decides it; null: every call does.
  bool (*decided)(const AttentionSpec&, const AttentionCall&) = nullptr;
  bool by_length = false;  // a function of AttentionCall::seed and of the length, not of the step

  static constexpr i64 no_such_element = -1;
  static constexpr i64 unbounded = std::numeric_limits<i64>::max();
};

using Choices = std::map<std::string, Tensor>;
using AttentionInputs = std::vector<AttentionInput>;

// The arguments of a call besides its inputs. Tensors are packed.
struct AttentionCall {
  bool causal = false;    // query i sees keys j <= i
  // [B] i64: keys at and beyond it do not exist; undefined: all exist. For a mechanism that takes
  // no query lengths and cannot attend across two sequences it applies to queries too. On the CPU
  // they are checked; on a CUDA device the host does not wait for them, and kernels clamp them.
  Tensor lengths = {};
  Tensor query_lengths = {};  // [B] i64: queries at and beyond it give 0; undefined: none
  std::shared_ptr<const AttentionPattern> pattern = {};  // pattern.h: which pairs are seen at all
  double dropout = 0;     // rate on the attention weights; 0 in evaluation
  RandomKey random = {};  // of all draws of a step, by the place of item 0 in the global batch
  bool training = false;  // noise is drawn in training alone
  // For what is drawn as a function of the length: the layer's own seed, the same in training and
  // evaluation (nn::Attention keeps it, and checkpoints hold it).
  std::uint64_t seed = 0;
  int layer = 0, depth = 0;  // this layer's index among all, and how often it was applied before
  int layers = 1;            // how many applications of layers there are in one pass
  i64 offset = 0;            // the first query's position in the sequence, in decoding
  Choices given = {};         // instead of being drawn or decided
  Choices* chosen = nullptr;  // if set, receives what was drawn and decided
};

// An element of a choice.
struct ChoicePlace {
  const AttentionSpec& spec;
  const AttentionSizes& sizes;
  const AttentionCall& call;            // its lengths are on the host
  std::span<const i64> place;           // along each axis
};

struct Masks {
  bool causal = false, lengths = false, query_lengths = false, bias = false, pattern = false;
};

// For mechanisms whose q, k and v have rows that are not positions, but nodes of a tree. N and S of
// a call count such rows; lengths and N_max count positions, and so do the lengths of tests and
// benchmarks. No layer makes such rows.
struct AttentionRows {
  // The number of rows of a sequence of `positions` positions; 0 for none, and monotonic. An item
  // of a shorter length has its own rows first. Null: a row is a position.
  i64 (*count)(i64 positions) = nullptr;
  // The last position that a row covers: later positions are its future.
  i64 (*last)(i64 positions, i64 row) = nullptr;
};

// The sum of the weights of a query's keys, if it sees any.
enum class RowSums { any, one, one_over_heads };

// The cost of one call, from arithmetic; the benchmark prints it beside measurements.
struct AttentionCost {
  double forward_operations = 0, backward_operations = 0;  // additions and multiplications
  double exponentials = 0;      // forward and backward together
  double saved_bytes = 0;       // kept for backward besides inputs and outputs
  double working_bytes = 0;     // at once during a call, one thread, besides these
  double cuda_working_bytes = 0;  // the same on a CUDA device
};

// Decoding: the state of one call of one layer.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  // The inputs of n >= 1 new positions (N = S = n) after those seen so far: a prompt is one step. A
  // bias is [B or 1, H or 1, n, positions seen, the new ones included]. Returns the outputs [B, n,
  // H, M].
  virtual Tensor step(std::span<const Tensor> inputs) = 0;
  virtual i64 bytes() const = 0;
};

// The result of a call.
struct Attended {
  Variable out;      // [B, N, H, M]; of a block [B, N, d']
  Variable penalty;  // [], a term of the loss; undefined: none

  Attended() = default;
  Attended(Variable out, Variable penalty = {})  // NOLINT(google-explicit-constructor)
      : out(std::move(out)), penalty(std::move(penalty)) {}
};

enum class Kind {
  operation,    // between the projections of q, k, v and the output map
  block,        // from x [B, N, d] to out [B, N, d'], with all its parameters
  composition,  // an operation made of other mechanisms and plain ops, without kernels
};

struct Mechanism {
  std::string name;
  std::string title;      // one line, for display
  std::string paper;      // authors, title, venue, arXiv number
  std::string equations;  // where they are in the paper
  std::string page = {};  // the folder that explains it; empty: of its own name
  Kind kind = Kind::operation;
  bool wrapper = false;  // a prefix of another: name:…/inner:…
  // Its inputs, with shapes for these sizes (attention_inputs() completes them). Options change the
  // inputs and their sizes; names, roles and axes do not depend on the sizes.
  AttentionInputs (*inputs)(const AttentionSpec&, const AttentionSizes&) = nullptr;
  // The width d' of a block's output; null: d.
  i64 (*out_width)(const AttentionSpec&, const AttentionSizes&) = nullptr;
  bool owns_residual = false;  // a block that adds its input and normalises by itself
  std::vector<AttentionChoice> choices = {};
  std::vector<OptionSheet> options = {};
  Masks masks = {};
  bool cross = false;            // can attend across two sequences
  bool causal_only = false;      // has no other form
  // Conditions (AttentionSpec::unmet()) without which it has no causal form.
  std::string causal_wants = {};
  std::string multiple_of = {};  // an option of which lengths are multiples; empty: none
  bool strictly_causal = false;  // with `causal`, no output depends on the future
  bool earlier_keys = false;     // S >= N: the last N keys are those of the queries, also if causal
  bool unordered_keys = false;   // without `causal`, invariant to the order of the keys
  AttentionRows rows = {};       // of its sequences, if they are not positions
  bool joined = false;           // its heads are displayed as one axis: out [B, N, H·M]
  bool linear_in_values = false;    // in the input of width M: its weights can be computed
  RowSums row_sums = RowSums::any;  // of those weights
  bool drops_weights = true;        // by AttentionCall::dropout, which has no effect otherwise
  bool takes_bf16 = false;          // `attend` is given bf16 as it is stored; otherwise f32
  std::string scaling;           // time against length, e.g. "N S" or "N"
  std::string memory = "N";      // bytes against length

  // The hand-written kernel, and the same mathematics in plain ops. A composition has one function
  // for both. A mechanism from outside the tree may have no reference.
  using Forward = Attended (*)(const AttentionSpec&, const AttentionCall&,
                               std::span<const Variable> inputs);
  Forward attend = nullptr;
  Forward reference = nullptr;
  // Null: no claims.
  AttentionCost (*cost)(const AttentionSpec&, const AttentionSizes&, bool causal, DType) = nullptr;
  bool cost_at_most = false;  // learnt inputs may need fewer operations than `cost` has
  // Null if the mechanism cannot decode. `capacity` is the most positions that a growing state may
  // keep; beyond it the oldest are dropped.
  std::unique_ptr<DecodingState> (*decode)(const AttentionSpec&, const AttentionSizes&, DType,
                                           i64 capacity) = nullptr;
  // An option that decoding needs with a value other than its default; empty: none.
  std::string decode_wants = {};

  // The sheet of a wrapper around this inner mechanism: the inputs, masks and facts of both
  // together. Null for other mechanisms.
  Mechanism (*around)(const Mechanism& own, const AttentionSpec& inner) = nullptr;
  std::vector<std::string> inner_tried = {};  // inner specifications that the tests try
};

// The page of a mechanism: the comment at the head of its folder's header, without comment signs.
// Empty for one from outside the tree.
std::string page_of(const Mechanism& mechanism);

// All mechanisms, by name, as registered when this is first called: plugins are loaded before.
const std::vector<const Mechanism*>& mechanisms();
// Those registered so far.
std::vector<const Mechanism*> mechanisms_so_far();
// Throws, with the existing names and the nearest one, if there is none of this name.
const Mechanism& mechanism(const std::string& name);

// What a plugin, a shared object with mechanisms from outside the tree, and the program that loads
// it must agree on: the layouts of the types that they exchange, and a number that is raised when
// their meaning changes and no layout does. It is part of the name of Registration's constructor,
// which a plugin links from the program: a plugin that was built with other headers needs a symbol
// that does not exist, and the loader refuses it before any of its code runs.
template <int meaning, class Functions, std::size_t... layouts>
struct PluginInterface {};
using PluginFunctions =
    void(decltype(Mechanism::inputs), decltype(Mechanism::out_width), Mechanism::Forward,
         decltype(Mechanism::cost), decltype(Mechanism::decode), decltype(Mechanism::around),
         decltype(AttentionInput::draw), decltype(&DecodingState::step));
using ThisInterface =
    PluginInterface<4, PluginFunctions, sizeof(Mechanism), sizeof(AttentionInput),
                    sizeof(AttentionChoice), sizeof(OptionSheet), sizeof(AttentionSpec),
                    sizeof(AttentionCall), sizeof(AttentionSizes), sizeof(AttentionCost),
                    sizeof(Attended), sizeof(Variable), sizeof(Tensor)>;

struct Registration {
  // Throws for a name that is taken or invalid in a specification, and for a mechanism that
  // computes nothing. A missing cost counts as 0.
  explicit Registration(Mechanism mechanism, ThisInterface = {});
};

// While one exists, registrations throw nothing: exceptions cannot pass through the loader of a
// shared object.
class RegistrationWatch {
 public:
  RegistrationWatch();
  ~RegistrationWatch();
  RegistrationWatch(const RegistrationWatch&) = delete;
  RegistrationWatch& operator=(const RegistrationWatch&) = delete;

  std::vector<std::string> registered = {};  // names
  std::string error = {};                    // why one failed
};

// Rows of q, k and v for a sequence of `positions` positions.
i64 rows_of(const Mechanism& mechanism, i64 positions);
// The inverse: throws, naming the mechanism, the possible numbers and `inputs`, if no sequence has
// so many rows.
i64 positions_of(const Mechanism& mechanism, i64 rows, const std::string& inputs = "");

// Whether this can decode step by step, with its options.
bool can_decode(const AttentionSpec& spec);
// Whether this has a causal form, with its options.
bool has_causal_form(const AttentionSpec& spec);
// Whether a parameter has N_max positions, so that there can be no more.
bool learns_by_position(const AttentionSpec& spec);

// The mechanism's inputs, with complete shapes.
AttentionInputs attention_inputs(const AttentionSpec& spec, const AttentionSizes& sizes = {});
// The words of an input's axes.
std::vector<std::string> axes_of(const AttentionInput& input);
// Whether its learnt inputs may need fewer operations than attention_cost() has.
bool cost_is_at_most(const AttentionSpec& spec);
// The cost of a call; zeros if the fact sheet has none (compositions of plain ops).
AttentionCost attention_cost(const AttentionSpec& spec, const AttentionSizes& sizes, bool causal,
                             DType type);
// [B, N, H, M]; of a block [B, N, d'].
Shape output_shape(const AttentionSpec& spec, const AttentionSizes& sizes);

// A call whose tensors fit the fact sheet: their sizes, and the specification with the options that
// tensors imply.
struct BoundCall {
  AttentionSpec spec;
  AttentionSizes sizes;
  AttentionInputs sheets;  // for these
};
// Throws, naming the mechanism and all shapes, if the inputs do not fit the fact sheet, or the call
// asks for a mask that the mechanism does not take.
BoundCall bound(const AttentionSpec& spec, const AttentionCall& call,
                std::span<const Variable> inputs);

// A choice that the caller gave, checked to be of this shape and type; otherwise undefined.
Tensor given_choice(const Mechanism& mechanism, const AttentionCall& call, const std::string& name,
                    const Shape& shape, DType type = DType::i64);
// The given choices, with 0 for elements that do not exist. Throws, naming the mechanism, the
// choice and the element, if given integers are invalid. attend() and defined() call it.
Choices checked_choices(const BoundCall& fitted, const AttentionCall& call);
// Reports a choice if the call asks for it.
void report_choice(const AttentionCall& call, const std::string& name, const Tensor& value);

// The result of `spec` for `inputs`, with checks: what layers call. Drawn inputs that are undefined
// are drawn with call.random; all draws are reported among the choices by name, and can be given as
// choices.
Attended attend(const AttentionSpec& spec, const AttentionCall& call,
                std::span<const Variable> inputs);
// The same by the mechanism's definition.
Attended defined(const AttentionSpec& spec, const AttentionCall& call,
                 std::span<const Variable> inputs);

}  // namespace weft
