#include "apps/wordlm/commands.h"

#include <cmath>
#include <cstdio>

#include "apps/command_line/config_file.h"
#include "apps/command_line/configuration.h"
#include "apps/command_line/device_option.h"
#include "apps/data/digest.h"
#include "apps/training/run.h"
#include "apps/wordlm/evaluate.h"
#include "apps/wordlm/generate.h"
#include "apps/wordlm/task.h"

namespace weft::wordlm {
namespace {

constexpr i64 sample_tokens = 120;

struct Part {
  std::span<const std::int32_t> ids;
  const WordCounts& counts;
};
Part part_of(const WordCorpus& corpus, const std::string& name) {
  check_word("split", name, {"train", "validation", "test"});
  if (name == "train") return {corpus.train, corpus.train_counts};
  if (name == "validation") return {corpus.validation, corpus.validation_counts};
  return {corpus.test, corpus.test_counts};
}

// Prints the perplexity by three definitions, and bits per character, each with an explanation.
void print_perplexities(const std::string& part, const WordPieces& pieces, const Perplexities& p,
                        Progress& progress) {
  progress.print(fmt::format(
      "{:<6} perplexity {:.2f} per piece: every piece but the first is a target once, no padding",
      part, p.token));
  const bool lossy = pieces.name() == "paper";
  progress.print(
      fmt::format("       perplexity {:.2f} per word or line end of the file as it is{}", p.word,
                  lossy ? " (the model reads it in lower case, with numbers as one piece)" : ""));
  progress.print(
      fmt::format("       {:.4f} bpc: bits for each of its characters, line ends included",
                  p.bits_per_character));
  progress.print(
      fmt::format("       perplexity {:.2f} by the agglomerative paper's definition: the mean of "
                  "exponentials over chunks whose last target is padding",
                  p.chunks.row_perplexity));
}

Json json_of(const Perplexities& p) {
  return {{"perplexity", p.token},
          {"paper_perplexity", p.chunks.row_perplexity},
          {"word_perplexity", p.word},
          {"bits_per_character", p.bits_per_character},
          {"cross_entropy", p.all.cross_entropy},
          {"targets", p.all.targets}};
}

void describe(const Model& model, const WordCorpus& corpus, const WordChunks& chunks,
              const RunOptions& run, Progress& progress) {
  const Settings& s = model.settings;
  for (const std::string& warning : corpus.warnings) progress.print("wordlm: " + warning);
  progress.print(fmt::format(
      "data   {}: {} pieces in the vocabulary ({}); {} to train, {} to validate, {} to test",
      s.data, grouped(corpus.pieces->size()), corpus.pieces->name(),
      grouped(std::ssize(corpus.train)), grouped(std::ssize(corpus.validation)),
      grouped(std::ssize(corpus.test))));
  const std::string name =
      s.preset.empty() ? ""
                       : name_of_preset(configuration_of(s), configuration_of(preset(s.preset)),
                                        network_setting_names(), progress);
  progress.print(description(name, s.model, parameter_count(*model.network)));
  const i64 steps = epoch_steps(s, chunks);
  progress.print(fmt::format(
      "train  {} steps of {} chunks, {} an epoch, {}, learning rate {:g} ({}), seed {}",
      grouped(s.total_steps(steps)), s.batch, grouped(steps), s.optimizer, s.lr, s.schedule,
      s.seed));
  print_precision(s.model.precision, run, progress);
  progress.print(kept(run));
}

// Scores the model on the test part and prints a sample.
std::vector<Figure> score_test(const Model& model, const WordCorpus& corpus,
                               const TrainResult& result, const Advance& advance, RunFolder& folder,
                               Progress& progress) {
  const Settings& s = model.settings;
  progress.print(fmt::format("best   epoch {}: validation {:.2f} ppl", result.best_epoch,
                             std::exp(result.best.cross_entropy)));
  const Perplexities test = perplexities(model, corpus.test, corpus.test_counts, advance);
  print_perplexities("test", *model.pieces, test, progress);
  Json line = {{"kind", "test"}};
  line.update(json_of(test));
  folder.log(line);
  move_to(*model.network, Device{});  // decoding one position at a time is as fast on the CPU
  print_sample(s.model.attention, folder, progress, [&] {
    std::string sample;
    write_text(model, "", sample_tokens, {.seed = s.seed},
               [&](const std::string& more) { sample += more; });
    return sample;
  });
  return {{"perplexity", "ppl a piece", test.token},
          {"paper_perplexity", "ppl as the paper counts", test.chunks.row_perplexity},
          {"word_perplexity", "ppl a word", test.word},
          {"bits_per_character", "bpc", test.bits_per_character}};
}

Trained train_once(const TrainCommand& command) {
  const Device device = device_of(command.run, command.settings.model.precision);
  const Settings& s = command.settings;
  const WordCorpus corpus = load_words(s.data, s.pieces, !command.run.only_measures());
  const std::int32_t pad = corpus.pieces->special().pad;
  const WordChunks training(corpus.train, s.model.length, pad);
  const WordChunks validation(corpus.validation, s.model.length, pad);
  const Model model = new_model(s, corpus.pieces);
  move_to(*model.network, device);
  Task task = training_task(model, training, validation);
  task.metadata["data_xxh3"] = data_digest(corpus.train, corpus.validation);
  task.odd_batches = [&] { odd_batches(model, corpus); };
  Progress progress(command.run.silent());
  const auto folder = run_folder(command.run);
  folder->show_columns(metric_columns(
      task.round, task.score.key,
      {"paper_perplexity", "word_perplexity", "bits_per_character", "cross_entropy", "targets"}));
  const TrainOptions options = train_options(s, epoch_steps(s, training), command.run);
  if (const auto ended = ended_before(*folder, task, options, progress)) return *ended;
  describe(model, corpus, training, command.run, progress);
  const auto score = [&](const TrainResult& result, const Advance& advance) {
    return score_test(model, corpus, result, advance, *folder, progress);
  };
  return run_training(task, options, s, command.run, *folder, progress, score);
}

// The input of --map: --text after the pieces' opening, or the first pieces of the split.
MapText map_text(const EvalCommand& command, const Model& model, const std::string& source,
                 std::span<const std::int32_t> split) {
  const WordPieces& pieces = *model.pieces;
  const auto special = pieces.special();
  PieceIds ids = pieces.opening();
  if (command.map.text.empty()) {
    const auto first = first_tokens(split, *model.network);
    ids.assign(first.begin(), first.end());
  } else {
    const PieceIds given = pieces.encode(command.map.text);
    ids.insert(ids.end(), given.begin(), given.end());
  }
  MapText text{.ids = {ids.begin(), ids.end()},
               .tokens = {},
               .source = command.map.text.empty() ? source : "--text",
               .between = pieces.any_bytes() ? "" : " "};
  for (const std::int32_t id : ids) {
    const std::string piece = id == special.begin ? "<begin>"
                              : id == special.end ? "<end>"
                                                  : pieces.decode(std::span(&id, 1));
    text.tokens.push_back(piece);
  }
  return text;
}

}  // namespace

int run_train(const TrainCommand& command) {
  check(command.settings);
  check_together(command.settings);
  check_encoding(command.settings.model);
  check_causal(command.settings.model.attention, allows_leaky(command));
  if (command.run.print_config) return print_config(command);
  return train_replicas(command, train_once);
}

int run_eval(const EvalCommand& command) {
  check(command.map);
  if (!command.attention.empty()) check_causal(command.attention, command.allow_leaky);
  const Device device = device_named(command.device);
  const Model model = read_model(command.checkpoint, command.attention);
  move_to(*model.network, device);
  const Settings& s = model.settings;
  check_causal(s.model.attention, command.allow_leaky);
  if (!command.map.text.empty()) {
    return write_map(command.map, *model.network, map_text(command, model, "", {}));
  }
  const std::string data = text_to_score(command, s.data);
  const WordCorpus corpus = load_words(data, model.pieces);
  const auto [ids, counts] = part_of(corpus, command.split);
  if (!command.map.place.empty()) {
    const std::string source = fmt::format("the {} split of {}", command.split, data);
    return write_map(command.map, *model.network, map_text(command, model, source, ids));
  }
  Progress progress;
  const Stopwatch watch;
  const Perplexities found = perplexities(model, ids, counts, [&](double share) {
    if (!command.json) progress.update(fmt::format("{} {:.0f} %", command.split, 100 * share));
  });
  progress.clear();
  if (!command.json) {
    print_perplexities(command.split, *model.pieces, found, progress);
    return 0;
  }
  Json line = {{"checkpoint", command.checkpoint},
               {"attention", s.model.attention},
               {"data", data},
               {"split", command.split},
               {"parameters", parameter_count(*model.network)},
               {"words", counts.words},
               {"characters", counts.characters},
               {"tokens", counts.tokens}};
  line.update(json_of(found));
  line["tokens_per_second"] =
      static_cast<double>(found.all.targets + found.chunks.targets) / watch.seconds();
  print_json(line);
  return 0;
}

int run_sample(const SampleCommand& command) {
  const Model model = read_model(command.checkpoint);
  const auto write = [&](const SamplingOptions& options, const SampleWriter::Say& say) {
    write_text(model, command.prompt, command.tokens, options, say);
  };
  const i64 prompt = std::ssize(read_before(model, command.prompt));
  return write_samples(command, {"wordlm", "pieces", *model.network, prompt, write});
}

int run_info(const InfoCommand& command) {
  const auto fresh = [&] {
    const Settings& s = command.settings;
    check(s);
    const bool of_paper = !s.preset.empty() && s.pieces == "paper" && s.data == "builtin";
    return new_model(s, of_paper ? nullptr : load_words(s.data, s.pieces, false).pieces);
  };
  const Model model = command.checkpoint.empty() ? fresh() : read_model(command.checkpoint);
  return print_information(model, command.json);
}

int run_export(const ExportCommand& command) {
  const Model model = read_model(command.checkpoint);
  return export_model(command, *model.network, model.tensors(), metadata_of(model));
}

}  // namespace weft::wordlm
