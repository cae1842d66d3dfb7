#include "apps/training/among_ranks.h"

#include "apps/command_line/configuration.h"
#include "apps/data/digest.h"
#include "runtime/communicator.h"

namespace weft {
namespace {

// Of a tensor on the CPU.
std::span<std::byte> memory_of(const Tensor& tensor) {
  return {tensor.bytes(), tensor.byte_count()};
}

void share(const Tensor& tensor) {
  const Tensor here = tensor.to(Device{});
  ranks().broadcast(memory_of(here));
  if (!here.same_storage(tensor)) tensor.copy_from(here);
}

// By name: the value of a setting, the digest of anything else.
Json facts_of(const Task& task, const TrainOptions& options) {
  Json facts = Json::Object();
  for (const auto& [key, value] : task.metadata) {
    if (key == "configuration") {
      for (const auto& [name, setting] : parse_configuration(value, key)) {
        facts["--" + name] = setting.text();
      }
    } else {
      facts[key] = digest(std::as_bytes(std::span(value)));
    }
  }
  facts["--checkpoint-steps"] = std::to_string(options.checkpoint_steps);
  facts["--detect-anomaly"] = options.detect_anomaly ? "true" : "false";
  return facts;
}

}  // namespace

void require_agreement(const Task& task, const TrainOptions& options) {
  if (ranks().alone()) return;
  const std::vector<std::string> all = ranks().gather(facts_of(task, options).text());
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    const Json first = parse_json(all[0]).value_or(Json()),
               other = parse_json(all[r]).value_or(Json());
    for (const auto& [key, value] : first.members()) {
      const Json* const found = other.find(key);
      require(
          found != nullptr && *found == value,
          "'{}' is not the same on ranks 0 and {}; all train with the same settings on the same "
          "data",
          key, r);
    }
    fail("rank {} has settings that rank 0 does not know", r);
  }
}

void share(const std::vector<NamedTensor>& tensors) {
  if (ranks().alone()) return;
  for (const NamedTensor& tensor : tensors) share(tensor.value);
}

void share(const std::map<std::string, Tensor>& tensors) {
  if (ranks().alone()) return;
  for (const auto& [name, tensor] : tensors) share(tensor);
}

std::optional<SavedTraining> shared(std::optional<SavedTraining> saved) {
  if (ranks().alone()) return saved;
  Json said;
  if (saved) {
    said = {{"step", saved->step},
            {"validated", saved->validated},
            {"best", saved->best},
            {"elapsed", saved->elapsed},
            {"unreported", saved->unreported},
            {"state", saved->state.metadata}};
  }
  const Json heard = parse_json(ranks().broadcast(said.text())).value_or(Json());
  if (ranks().leads() || !heard.is<Json::Object>()) return saved;
  SavedTraining taken;
  heard.find("step")->take(taken.step);
  heard.find("validated")->take(taken.validated);
  heard.find("best")->take(taken.best);
  heard.find("elapsed")->take(taken.elapsed);
  heard.find("unreported")->take(taken.unreported);
  for (const auto& [key, value] : heard.find("state")->members()) {
    value.take(taken.state.metadata[key]);
  }
  return taken;
}

Tensor rows_of_all(const Tensor& tensor) {
  if (ranks().alone()) return tensor;
  const Tensor own = tensor.to(Device{});
  Shape shape = own.shape();
  shape[0] *= ranks().size();
  const Tensor all = Tensor::empty(shape, own.dtype());
  const auto count = static_cast<std::size_t>(ranks().size());
  const std::vector<std::span<const std::byte>> to(count, memory_of(own));
  std::vector<std::span<std::byte>> from;
  for (std::size_t r = 0; r < count; ++r) {
    from.push_back(memory_of(all).subspan(r * to[r].size(), to[r].size()));
  }
  ranks().exchange(to, from);
  return all;
}

void take_rows(const Tensor& own, const Tensor& all) {
  if (ranks().alone()) return;
  const i64 first = ranks().rank() * own.size(0);
  own.copy_from(all.slice(0, first, first + own.size(0)));
}

}  // namespace weft
