// The fact sheet of an attention mechanism, and the registry of them all.
//
// A mechanism's .cpp ends with
//     const Registration registered{Mechanism{.name = "clustered", …}};
// and one word in ops/meson.build compiles it in. The tests, the benchmark, the layers and the apps
// loop over mechanisms(); nothing else names one.
//
// Sizes: B batch, N query length, S key length, H heads (or classes), E key width and M value width
// of a head, d model width.
#pragma once

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

struct AttentionSizes {
  std::int64_t B = 1, N = 1, S = 1, H = 1, E = 1, M = 1, d = 1;
};

// Where an input comes from.
enum class Role {
  projected,  // a learnt linear map of a sequence: query, key, value, logits
  sequence,   // the layer's own x
  parameter,  // learnt, the same for every sequence
  state,      // in and out: memories
  bias,       // added to the scores
};
enum class Side { query, reference };  // which of the two sequences (self-attention: the same)

struct AttentionInput {
  std::string name = {};   // "q"
  Role role = Role::projected;
  Side side = Side::query;
  std::string shape = {};  // symbols of AttentionSizes: "B N H E"; a small letter: that size or 1
  // Projected inputs that name the same matrix are column ranges of one, drawn as one.
  std::string matrix = {};
  Initializer weight = {};
  bool biased = false;  // the projection adds a vector, started by `bias`
  Initializer bias = {};
  bool optional = false;  // may be undefined
};

// What a mechanism draws or decides on the way, through which no gradient flows: random planes,
// labels of clusters, indices of the largest keys, permutations. It comes out under its name
// (AttentionCall::chosen), and can be handed in (AttentionCall::given) so that nothing is decided.
struct AttentionChoice {
  std::string name = {};   // "labels"
  std::string shape = {};  // for people: "B H N"
  bool integer = true;     // i64; otherwise of the inputs' type
  bool accepted = true;    // can be handed in
};

using Choices = std::map<std::string, Tensor>;

// What a call carries besides its inputs. Tensors are packed.
struct AttentionCall {
  bool causal = false;    // query i sees keys j <= i
  // [B] i64: keys at and past it do not exist; undefined: all exist. A mechanism that takes no
  // query lengths and cannot attend across two sequences counts its queries by them too. On the CPU
  // they are checked; on a CUDA device nothing is waited for, and kernels cut them to what there is.
  Tensor lengths;
  Tensor query_lengths;   // [B] i64: queries at and past it give 0; undefined: all count
  double dropout = 0;     // rate on the attention weights; 0 in evaluation
  RandomKey random = {};  // of that dropout and of whatever else is drawn
  int layer = 0, depth = 0;  // this layer's index among all, and how often it was applied before
  int layers = 1;            // how many applications of layers there are in one pass
  bool training = false;
  Choices given = {};         // instead of being drawn or decided
  Choices* chosen = nullptr;  // where set, takes what was drawn and decided
};

struct Masks {
  bool causal = false, lengths = false, query_lengths = false, bias = false;
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

// Step-by-step decoding: the state belongs to one call of one layer.
class DecodingState {
 public:
  virtual ~DecodingState() = default;
  // The inputs of one new position (N = S = 1); returns its output [B, 1, H, M].
  virtual Tensor step(std::span<const Tensor> inputs) = 0;
  virtual std::int64_t bytes() const = 0;
};

struct Mechanism {
  std::string name;
  std::string title;      // one line for people
  std::string paper;      // authors, title, venue, arXiv number
  std::string equations;  // where they stand in the paper
  std::string page = {};  // the folder that explains it; empty: its own name
  bool block = false;     // from x to out, without outer projections; otherwise an operator
  bool wrapper = false;   // stands before another: name:…/inner:…
  std::vector<AttentionInput> inputs;
  std::vector<AttentionChoice> choices = {};
  std::vector<OptionSheet> options = {};
  Masks masks = {};
  bool cross = false;            // can attend across two sequences
  bool causal_only = false;      // has no other form
  bool strictly_causal = false;  // with `causal`, nothing of the future reaches an output
  bool unordered_keys = false;   // without `causal`, the order of the references does not matter
  bool joined = false;           // people see its heads as one axis: out [B, N, H·M]
  bool linear_in_values = false; // the input of width M enters linearly: weights can be read off
  RowSums row_sums = RowSums::any;  // of those weights
  std::string scaling;           // time against length, e.g. "N S" or "N"
  std::string memory = "N";      // bytes against length

  // out [B, N, H, M]. The hand-written kernel, and the same mathematics composed of plain ops.
  using Forward = Variable (*)(const AttentionSpec&, const AttentionCall&,
                               std::span<const Variable> inputs);
  Forward attend = nullptr;
  Forward reference = nullptr;
  AttentionCost (*cost)(const AttentionSpec&, const AttentionSizes&, bool causal, DType) = nullptr;
  // Null where the mechanism cannot decode. `capacity` is the most positions that a mechanism whose
  // state grows may keep; past it the oldest are forgotten.
  std::unique_ptr<DecodingState> (*decode)(const AttentionSpec&, const AttentionSizes&, DType,
                                           std::int64_t capacity) = nullptr;

  // A wrapper's sheet before this inner mechanism: inputs, masks and facts as the two have them
  // together. Null for the others.
  Mechanism (*around)(const Mechanism& own, const AttentionSpec& inner) = nullptr;
  std::vector<std::string> inner_tried = {};  // inner specifications that the tests try
};

// The page of a mechanism: the text that begins its folder's header, without the comment signs.
std::string page_of(const Mechanism& mechanism);

// All mechanisms, by name.
const std::vector<const Mechanism*>& mechanisms();
// Throws, with the names that exist and the nearest one, where there is none of this name.
const Mechanism& mechanism(const std::string& name);

struct Registration {
  explicit Registration(Mechanism mechanism);  // a name that is taken is an error
};

// The shape of an input for these sizes.
Shape input_shape(const AttentionInput& input, const AttentionSizes& sizes);
// The sizes that these inputs have; throws, naming the mechanism and all shapes, where they do not
// fit the fact sheet, and where the call asks for a mask that the mechanism does not take.
AttentionSizes checked_sizes(const Mechanism& mechanism, const AttentionCall& call,
                             std::span<const Variable> inputs);

// A choice that was handed in, checked to be of this shape and type; undefined where it was not.
Tensor given_choice(const Mechanism& mechanism, const AttentionCall& call, const std::string& name,
                    const Shape& shape, DType type = DType::i64);
// Hands a choice out where the call asks for it.
void report_choice(const AttentionCall& call, const std::string& name, const Tensor& value);

// The output of `spec` over `inputs`, checked: what layers call.
Variable attend(const AttentionSpec& spec, const AttentionCall& call,
                std::span<const Variable> inputs);

// The name with the fewest edits from `wanted`.
std::string nearest_name(const std::string& wanted, const std::vector<std::string>& names);
// "full, agglomerative; did you mean full?" for error messages.
std::string known_names(const std::string& wanted, const std::vector<std::string>& names);

}  // namespace weft
