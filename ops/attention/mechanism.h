// The fact sheet of an attention mechanism, and the registry of them all.
//
// A mechanism's .cpp ends with
//     const Registration registered{Mechanism{.name = "clustered", …}};
// and one word in ops/meson.build compiles it in. The tests, the benchmark, the layers and the apps
// loop over mechanisms(); nothing else names one. From outside the tree it comes in as a shared
// object, by --plugin (apps/command_line/plugin.h).
//
// Sizes: B batch, N query length, S key length, H heads (or classes), E key width and M value width
// of a head, d model width, N_max the most positions that learnt tensors serve.
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
  bool causal = false;  // a block may learn less for its causal form
};

// What an input is, and who makes it in a layer (nn::Attention).
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
  Side side = Side::query;  // of a parameter: whose positions N_max counts; query: those of both
  // A word an axis, "B N H E". A symbol of AttentionSizes is that size, "b" and "h" are that size
  // or 1, the name of an option is what that option says. Any other word is for people, `shape` has
  // its number, and a tensor with more is welcome where the word names N_max or another max.
  std::string axes = {};
  // The shape for the sizes at hand; empty: the words of `axes` say all.
  Shape shape = {};
  // Projected inputs that name the same matrix are column ranges of one, drawn as one.
  std::string matrix = {};
  // Widths of the hidden layers of the projection, each with a bias and ReLU behind it.
  std::vector<i64> through = {};
  Initializer weight = {};  // of the projection's matrices, of a parameter
  bool biased = false;      // the projection adds a vector, started by `bias`
  Initializer bias = {};
  bool optional = false;    // may be undefined; a layer makes what is learnt all the same
  bool causal = false;      // of causal calls alone; such inputs stand behind the others
  Bounds bounds = {};       // of a parameter
  // Drawn inputs: fills a tensor on the CPU, and after how many training steps it is drawn anew (0:
  // never).
  void (*draw)(RandomKey key, const Tensor& target) = nullptr;
  i64 redraw = 0;
};

struct AttentionCall;
struct ChoicePlace;
enum class ChoiceOrder {  // of a choice of integers
  any,
  ascending,    // along the last axis, with -1 behind the last
  permutation,  // of positions, along axis 1 of three
};

// What a mechanism draws or decides on the way, through which no gradient flows: random planes,
// labels of clusters, indices of the largest keys, permutations. It comes out under its name
// (AttentionCall::chosen), and can be handed in (AttentionCall::given) so that nothing is decided.
//
// What is handed in is checked before anything is computed, and a bad value throws, on a CUDA device
// too: it is copied to the host, which waits for it. Only tests and programs that read files hand
// choices in. A training step does not: backward uses what forward saved, and drawn inputs of a
// layer come in as inputs. So a captured step never waits, and no kernel meets a bad choice. The op
// `gather` (ops/gather) is for training steps, and its rule is another.
struct AttentionChoice {
  std::string name = {};   // "labels"
  std::string shape = {};  // for people: "B H N"
  bool integer = true;     // i64; otherwise of the inputs' type
  bool accepted = true;    // can be handed in
  // Of integers that can be handed in. The sizes of its axes, and how many values there are for an
  // element: it is one of 0 … n − 1. Where n is `no_such_element`, a query past the lengths say, any
  // value may stand; without the function any value may stand anywhere.
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

// What a call carries besides its inputs. Tensors are packed.
struct AttentionCall {
  bool causal = false;    // query i sees keys j <= i
  // [B] i64: keys at and past it do not exist; undefined: all exist. A mechanism that takes no
  // query lengths and cannot attend across two sequences counts its queries by them too. On the CPU
  // they are checked; on a CUDA device nothing is waited for, and kernels cut them to what there is.
  Tensor lengths = {};
  Tensor query_lengths = {};  // [B] i64: queries at and past it give 0; undefined: all count
  std::shared_ptr<const AttentionPattern> pattern = {};  // pattern.h: which pairs are seen at all
  double dropout = 0;     // rate on the attention weights; 0 in evaluation
  RandomKey random = {};  // of that dropout and of whatever else is drawn in a step
  bool training = false;  // what is noise is drawn in training alone
  // Of what is drawn as a function of the length: the layer's own, the same in training and
  // evaluation (nn::Attention keeps it, and checkpoints hold it).
  std::uint64_t seed = 0;
  int layer = 0, depth = 0;  // this layer's index among all, and how often it was applied before
  int layers = 1;            // how many applications of layers there are in one pass
  i64 offset = 0;            // the first query's position in the sequence, in decoding
  Choices given = {};         // instead of being drawn or decided
  Choices* chosen = nullptr;  // where set, takes what was drawn and decided
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

// What q, k and v have in the place of positions, where that is not what they have: nodes of a
// tree. N and S of a call count such rows; lengths and N_max count positions, and so do the lengths
// of tests and benchmarks. No layer makes such rows.
struct AttentionRows {
  // Of a sequence of so many positions; of none 0, and rising. An item of a shorter length has its
  // own rows in front. Null: a row is a position.
  i64 (*count)(i64 positions) = nullptr;
  // The last position that a row stands for: what comes after it is the row's future.
  i64 (*last)(i64 positions, i64 row) = nullptr;
};

// What the weights that a query gives to its keys sum to, where it sees any.
enum class RowSums { any, one, one_over_heads };

// What one call costs, by arithmetic: the benchmark sets measurements beside it.
struct AttentionCost {
  double forward_operations = 0, backward_operations = 0;  // additions and multiplications
  double exponentials = 0;      // forward and backward together
  double saved_bytes = 0;       // kept for backward besides inputs and outputs
  double working_bytes = 0;     // at once during a call, one thread, besides all of these
  double cuda_working_bytes = 0;  // the same on a CUDA device
};

// Decoding: the state belongs to one call of one layer.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  // The inputs of n >= 1 new positions (N = S = n) after those seen so far: a prompt is one step.
  // A bias is [B or 1, H or 1, n, positions seen, the new ones included]. Returns the outputs
  // [B, n, H, M].
  virtual Tensor step(std::span<const Tensor> inputs) = 0;
  virtual i64 bytes() const = 0;
};

// What a call gives.
struct Attended {
  Variable out;      // [B, N, H, M]; of a block [B, N, d']
  Variable penalty;  // [], a term of the loss; undefined: none

  Attended() = default;
  Attended(Variable out, Variable penalty = {})  // NOLINT(google-explicit-constructor)
      : out(std::move(out)), penalty(std::move(penalty)) {}
};

enum class Kind {
  operation,    // between the projections of q, k, v and the output map
  block,        // from x [B, N, d] to out [B, N, d'], with all that is learnt inside
  composition,  // an operation made of other mechanisms and plain ops, without kernels
};

struct Mechanism {
  std::string name;
  std::string title;      // one line for people
  std::string paper;      // authors, title, venue, arXiv number
  std::string equations;  // where they stand in the paper
  std::string page = {};  // the folder that explains it; empty: its own name
  Kind kind = Kind::operation;
  bool wrapper = false;   // stands before another: name:…/inner:…
  // What it takes, with shapes for these sizes (attention_inputs() completes them). Options change
  // which inputs there are and how large; names, roles and axes do not depend on the sizes.
  AttentionInputs (*inputs)(const AttentionSpec&, const AttentionSizes&) = nullptr;
  // The width d' of a block's output; null: d.
  i64 (*out_width)(const AttentionSpec&, const AttentionSizes&) = nullptr;
  bool owns_residual = false;  // a block that adds its input and normalises by itself
  std::vector<AttentionChoice> choices = {};
  std::vector<OptionSheet> options = {};
  Masks masks = {};
  bool cross = false;            // can attend across two sequences
  bool causal_only = false;      // has no other form
  // "option=value" or "option!=value" without which it has no causal form; empty: none.
  std::string causal_wants = {};
  std::string multiple_of = {};   // an option of which lengths are whole multiples; empty: none
  bool strictly_causal = false;  // with `causal`, nothing of the future reaches an output
  bool earlier_keys = false;     // S >= N: the last N keys are those of the queries, causal too
  bool unordered_keys = false;   // without `causal`, the order of the references does not matter
  AttentionRows rows = {};       // of its sequences, where they are not positions
  bool joined = false;           // people see its heads as one axis: out [B, N, H·M]
  bool linear_in_values = false; // the input of width M enters linearly: weights can be read off
  RowSums row_sums = RowSums::any;  // of those weights
  std::string scaling;           // time against length, e.g. "N S" or "N"
  std::string memory = "N";      // bytes against length

  // The hand-written kernel, and the same mathematics composed of plain ops. A composition has one
  // function for both.
  using Forward = Attended (*)(const AttentionSpec&, const AttentionCall&,
                               std::span<const Variable> inputs);
  Forward attend = nullptr;
  Forward reference = nullptr;
  // Null where nothing is claimed.
  AttentionCost (*cost)(const AttentionSpec&, const AttentionSizes&, bool causal, DType) = nullptr;
  // Null where the mechanism cannot decode. `capacity` is the most positions that a mechanism whose
  // state grows may keep; past it the oldest are forgotten.
  std::unique_ptr<DecodingState> (*decode)(const AttentionSpec&, const AttentionSizes&, DType,
                                           i64 capacity) = nullptr;
  std::string decode_wants = {};  // an option that decoding wants set; empty: none

  // A wrapper's sheet before this inner mechanism: inputs, masks and facts as the two have them
  // together. Null for the others.
  Mechanism (*around)(const Mechanism& own, const AttentionSpec& inner) = nullptr;
  std::vector<std::string> inner_tried = {};  // inner specifications that the tests try
};

// The page of a mechanism: the text that begins its folder's header, without the comment signs.
// Empty for one from outside the tree.
std::string page_of(const Mechanism& mechanism);

// All mechanisms, by name, as they are when this is first asked for: plugins come before.
const std::vector<const Mechanism*>& mechanisms();
// Those that are there by now; more may come.
std::vector<const Mechanism*> mechanisms_so_far();
// Throws, with the names that exist and the nearest one, where there is none of this name.
const Mechanism& mechanism(const std::string& name);

// What a plugin, a shared object with mechanisms from outside the tree, has to see as the program
// does that loads it: the layouts of what crosses between the two, and a number that is raised
// where their meaning changes and no layout does. It is part of the name of Registration's
// constructor, which a plugin takes from the program: one that was built with other headers asks
// for a name that is not there, and the loader refuses it before any of its code runs.
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
  // A name that is taken or cannot stand in a specification is an error, and so is a mechanism that
  // computes nothing. Without a cost it is counted as 0.
  explicit Registration(Mechanism mechanism, ThisInterface = {});
};

// Registrations on the way: while one lives they throw nothing, since what loads a shared object
// lets no exception through.
class RegistrationWatch {
 public:
  RegistrationWatch();
  ~RegistrationWatch();
  RegistrationWatch(const RegistrationWatch&) = delete;
  RegistrationWatch& operator=(const RegistrationWatch&) = delete;

  std::vector<std::string> registered = {};  // names
  std::string error = {};                    // why one was not
};

// Rows of q, k and v for a sequence of so many positions.
i64 rows_of(const Mechanism& mechanism, i64 positions);
// And back: throws, naming the mechanism, the numbers that there are and `inputs`, where no
// sequence has so many.
i64 positions_of(const Mechanism& mechanism, i64 rows, const std::string& inputs = "");

// Whether this can decode step by step, with its options as they are.
bool can_decode(const AttentionSpec& spec);
// Whether this has a causal form, with its options as they are.
bool has_causal_form(const AttentionSpec& spec);
// Whether something is learnt for each of N_max positions, so that there can be no more.
bool learns_by_position(const AttentionSpec& spec);

// The mechanism's inputs, their shapes complete.
AttentionInputs attention_inputs(const AttentionSpec& spec, const AttentionSizes& sizes = {});
// The words of an input's axes.
std::vector<std::string> axes_of(const AttentionInput& input);
// What a call costs; zeros where the fact sheet does not say (compositions of plain ops).
AttentionCost attention_cost(const AttentionSpec& spec, const AttentionSizes& sizes, bool causal,
                             DType type);
// [B, N, H, M]; of a block [B, N, d'].
Shape output_shape(const AttentionSpec& spec, const AttentionSizes& sizes);

// A call whose tensors fit the fact sheet: the sizes that they have, and the specification with the
// options that tensors say.
struct BoundCall {
  AttentionSpec spec;
  AttentionSizes sizes;
  AttentionInputs sheets;  // for these
};
// Throws, naming the mechanism and all shapes, where the inputs do not fit the fact sheet, and where
// the call asks for a mask that the mechanism does not take.
BoundCall bound(const AttentionSpec& spec, const AttentionCall& call,
                std::span<const Variable> inputs);

// A choice that was handed in, checked to be of this shape and type; undefined where it was not.
Tensor given_choice(const Mechanism& mechanism, const AttentionCall& call, const std::string& name,
                    const Shape& shape, DType type = DType::i64);
// Throws, naming the mechanism, the choice and the place, where integers that were handed in cannot
// be. attend() and defined() call it.
void check_choices(const BoundCall& fitted, const AttentionCall& call);
// Hands a choice out where the call asks for it.
void report_choice(const AttentionCall& call, const std::string& name, const Tensor& value);

// What `spec` gives over `inputs`, checked: what layers call. Drawn inputs that are undefined are
// drawn by call.random; all that was drawn comes out among the choices under its name, and can be
// handed in as one.
Attended attend(const AttentionSpec& spec, const AttentionCall& call,
                std::span<const Variable> inputs);
// The same by the mechanism's definition.
Attended defined(const AttentionSpec& spec, const AttentionCall& call,
                 std::span<const Variable> inputs);

}  // namespace weft
