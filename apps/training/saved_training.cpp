#include "apps/training/saved_training.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/core.h>

#include "apps/command_line/commit.h"
#include "apps/command_line/computed_by.h"
#include "apps/command_line/configuration.h"
#include "apps/data/digest.h"
#include "nn/file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* prefix = "step-";
constexpr const char* model_file = "model.safetensors";
constexpr const char* state_file = "state.safetensors";
constexpr const char* manifest_file = "manifest.json";

// Parses the manifest of a checkpoint, which is not trusted.
class Manifest {
 public:
  Manifest(std::string path, const std::string& text)
      : path_(std::move(path)), all_(parse_json(text).value_or(Json())) {
    require(all_.is<Json::Object>(), "{}: is not a JSON object", path_);
  }
  static Manifest of(const std::string& checkpoint) {
    const std::string path = checkpoint + "/" + manifest_file;
    return {path, read_file(path)};
  }

  const std::string& path() const { return path_; }
  template <class T>
  T get(const char* key) const {
    return get<T>(all_, key);
  }

  std::string text_or_none(const char* key) const {
    return all_.find(key) == nullptr ? std::string() : get<std::string>(key);
  }

  struct File {
    std::uint64_t bytes;
    std::string xxh3;
  };
  File file(const char* name) const {
    const Json entry = object(object(all_, "files"), name);
    return {get<std::uint64_t>(entry, "bytes"), get<std::string>(entry, "xxh3")};
  }

  // Reads one of the checkpoint's files; throws if its size or checksum differs from the manifest.
  Checkpoint read(const char* name) const {
    const std::string path = fs::path(path_).replace_filename(name);
    const File said = file(name);
    const std::uint64_t found = InputFile(path).size();
    require(found == said.bytes, "{}: has {} bytes, its manifest says {}", path, found, said.bytes);
    require(digest_of_file(path) == said.xxh3,
            "{}: its checksum differs from the manifest's; it is damaged", path);
    return read_checkpoint(path);
  }

 private:
  template <class T>
  T get(const Json& from, const char* key) const {
    T value{};
    const Json* const found = from.find(key);
    require(found != nullptr && found->take(value), "{}: has no '{}' of the right kind", path_,
            key);
    return value;
  }
  Json object(const Json& from, const char* key) const {
    const Json* const found = from.find(key);
    require(found != nullptr && found->is<Json::Object>(), "{}: has no object '{}'", path_, key);
    return *found;
  }

  std::string path_;
  Json all_;
};

// The best checkpoint named by `checkpoint`; empty if its manifest is damaged.
std::string best_named_by(const std::string& checkpoint) {
  try {
    return Manifest::of(checkpoint).get<std::string>("best");
  } catch (const Error&) {
    return {};
  }
}

// What the manifest says of the training.
SavedTraining said_by(const Manifest& manifest) {
  SavedTraining saved;
  saved.step = manifest.get<i64>("step");
  saved.validated = manifest.get<bool>("validated");
  saved.best = manifest.get<std::string>("best");
  saved.log_bytes = manifest.get<std::uint64_t>("log_bytes");
  saved.elapsed = manifest.get<double>("elapsed");
  saved.unreported = manifest.get<double>("unreported");
  saved.computed_by = manifest.text_or_none("computed_by");  // older checkpoints have none
  require(saved.best.empty() ||
              (saved.best.starts_with(prefix) && saved.best.find('/') == std::string::npos),
          "{}: '{}' is not the name of a checkpoint", manifest.path(), saved.best);
  return saved;
}

// Throws, with the reason, if the checkpoint, or the best one that it names, is not complete.
SavedTraining read_training(const std::string& folder, const std::string& name) {
  const Manifest manifest = Manifest::of(folder + "/" + name);
  SavedTraining saved = said_by(manifest);
  require(name_of(saved) == name, "{}: is of {}, which is not its folder's name", manifest.path(),
          name_of(saved));
  saved.model = manifest.read(model_file);
  saved.state = manifest.read(state_file);
  if (saved.best.empty()) return saved;
  saved.best_model =
      saved.best == name ? saved.model : Manifest::of(folder + "/" + saved.best).read(model_file);
  return saved;
}

}  // namespace

SavedTraining said_by_manifest(const std::string& text, const std::string& path) {
  const Manifest manifest(path, text);
  manifest.file(model_file), manifest.file(state_file);
  return said_by(manifest);
}

std::string checkpoint_name(i64 step, bool validated) {
  return fmt::format("{}{:010}{}", prefix, step, validated ? "-validated" : "");
}

std::vector<std::string> saved_trainings(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && entry.is_directory(error)) names.push_back(name);
  }
  std::sort(names.begin(), names.end(), std::greater<>());
  return names;
}

void write_training(const SavedTraining& saved, const std::string& folder) {
  const std::string checkpoint = folder + "/" + name_of(saved);
  std::error_code error;
  fs::create_directory(checkpoint, error);
  require(!error, "{}: cannot be created: {}", checkpoint, error.message());
  Json files;
  for (const auto& [name, content] :
       {std::pair{model_file, &saved.model}, std::pair{state_file, &saved.state}}) {
    const std::string path = checkpoint + "/" + name;
    write_checkpoint(*content, path);
    files[name] = {{"bytes", fs::file_size(path)}, {"xxh3", digest_of_file(path)}};
  }
  const Json manifest = {{"weft_version", WEFT_VERSION},          {"commit", commit},
                         {"computed_by", text_of(computed_by())}, {"step", saved.step},
                         {"validated", saved.validated},          {"best", saved.best},
                         {"log_bytes", saved.log_bytes},          {"elapsed", saved.elapsed},
                         {"unreported", saved.unreported},        {"files", files}};
  write_file(checkpoint + "/" + manifest_file, manifest.text(2) + "\n");
}

SavedTraining read_last_training(const std::string& folder,
                                 const std::function<void(const std::string& what)>& passed_over) {
  for (const std::string& name : saved_trainings(folder)) {
    try {
      return read_training(folder, name);
    } catch (const Error& error) {
      if (passed_over) passed_over(fmt::format("{} is not complete: {}", name, error.what()));
    }
  }
  fail(
      "{}: holds no complete checkpoint to resume from; start again with --force in place of "
      "--resume",
      folder);
}

void remove_old_trainings(const std::string& folder, i64 keep) {
  const std::vector<std::string> names = saved_trainings(folder);
  const std::size_t kept = std::min(names.size(), static_cast<std::size_t>(keep));
  std::set<std::string> wanted(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(kept));
  for (std::size_t i = 0; i < kept; ++i) wanted.insert(best_named_by(folder + "/" + names[i]));
  for (const std::string& name : names) {
    if (!wanted.contains(name)) remove_training(folder, name);
  }
}

// Removes the manifest first: a partly removed checkpoint is then not taken for a complete one.
void remove_training(const std::string& folder, const std::string& name) {
  std::error_code error;
  fs::remove(folder + "/" + name + "/" + manifest_file, error);
  fs::remove_all(folder + "/" + name, error);
  require(!error, "{}/{}: cannot be removed: {}", folder, name, error.message());
}

}  // namespace weft
