// CPU kernels of the clustering of queries; the rules are in clusters.h.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/attention/clustered/clusters.h"
#include "ops/attention/rows.h"
#include "runtime/parallel.h"
#include "runtime/simd.h"
#include "runtime/tile.h"

namespace weft {
namespace {

namespace hn = simd::hn;

constexpr i64 hash_rows = 64;            // queries hashed by one product
constexpr int cluster_bits = 12;         // of a key (distance, cluster)
static_assert(most_clusters <= i64{1} << cluster_bits);
constexpr i64 assigned = 2;  // vectors of codes that one sweep over centroids assigns

template <class Word>
constexpr i64 block_of = assigned* simd::lanes<Word>;

// The planes transposed, [E, width], and their thresholds [width]; bits from bits() on are always
// 0.
template <class T>
struct TurnedPlanes {
  i64 width;
  Scratch<T> buffer;
  T *planes, *thresholds;

  explicit TurnedPlanes(const QueryClusters<T>& p)
      : width(simd::round_up_to_lanes<T>(p.bits())), buffer(width * (p.E() + 1)) {
    planes = buffer.data();
    thresholds = planes + p.E() * width;
    for (i64 r = 0; r < width; ++r) {
      const bool real = r < p.bits();
      for (i64 e = 0; e < p.E(); ++e) planes[e * width + r] = real ? p.planes(r, e) : T(0);
      thresholds[r] = real ? p.planes(r, p.E()) : std::numeric_limits<T>::infinity();
    }
  }

  std::uint64_t code(const T* products) const {
    const simd::Tag<T> d;
    std::uint64_t code = 0;
    for (i64 r = 0; r < width; r += simd::lanes<T>) {
      std::uint64_t some = 0;
      hn::StoreMaskBits(d, hn::Gt(hn::LoadU(d, products + r), hn::LoadU(d, thresholds + r)),
                        reinterpret_cast<std::uint8_t*>(&some));
      code |= some << r;
    }
    return code;
  }
};

// Calls f(i, hash) for the valid queries of one batch item and head.
template <class T, class F>
void each_hash(const QueryClusters<T>& p, const TurnedPlanes<T>& planes, i64 b, i64 h, const F& f) {
  const i64 count = length_of(p.lengths, b, p.N()), width = planes.width;
  const Scratch<T> products(hash_rows * width);
  for (i64 begin = 0; begin < count; begin += hash_rows) {
    const i64 rows = std::min(hash_rows, count - begin);
    tile_product<T>(rows, width, p.E(), {&p.q(b, begin, h, 0), p.q.stride(1), p.q.stride(3)},
                    {planes.planes, width}, {products.data(), width}, false);
    for (i64 i = 0; i < rows; ++i) {
      f(begin + i, planes.code(products.data() + i * width));
    }
  }
}

// K-means over the codes of one batch item and head. Codes are padded to whole blocks of lanes.
template <class Word>
class HammingMeans {
 public:
  HammingMeans(const Word* codes, i64 count, i64 clusters, std::int32_t* labels)
      : codes_(codes),
        count_(count),
        clusters_(clusters),
        labels_(labels),
        buffer_(clusters * (halves * 32 + 1) + clusters * halves),
        centroids_(reinterpret_cast<Word*>(buffer_.data())),
        ones_(buffer_.data() + clusters * halves),
        sizes_(ones_ + clusters * halves * 32) {}

  void run(const i64* positions, i64 iterations) {
    for (i64 c = 0; c < clusters_; ++c) centroids_[c] = codes_[positions[c]];
    for (i64 t = 0; t < iterations; ++t) {
      assign();
      if (t + 1 == iterations || !update()) return;
    }
  }

 private:
  static constexpr i64 halves = sizeof(Word) / sizeof(std::int32_t);

  void assign() {
    const simd::Tag<Word> d;
    const hn::RebindToSigned<simd::Tag<Word>> keys;
    using Key = std::make_signed_t<Word>;
    constexpr i64 n = simd::lanes<Word>;
    HWY_ALIGN Key lane[block_of<Word>];
    for (i64 i = 0; i < count_; i += block_of<Word>) {
      simd::Vector<Word> code[assigned];
      simd::Vector<Key> best[assigned];
      for (i64 v = 0; v < assigned; ++v) {
        code[v] = hn::LoadU(d, codes_ + i + v * n);
        best[v] = hn::Set(keys, std::numeric_limits<Key>::max());
      }
      for (i64 c = 0; c < clusters_; ++c) {
        const auto centroid = hn::Set(d, centroids_[c]);
        const auto cluster = hn::Set(d, static_cast<Word>(c));
        for (i64 v = 0; v < assigned; ++v) {
          const auto distance = hn::PopulationCount(hn::Xor(code[v], centroid));
          const auto key = hn::Or(hn::ShiftLeft<cluster_bits>(distance), cluster);
          best[v] = hn::Min(best[v], hn::BitCast(keys, key));
        }
      }
      for (i64 v = 0; v < assigned; ++v) hn::Store(best[v], keys, lane + v * n);
      const i64 rows = std::min(block_of<Word>, count_ - i);
      for (i64 j = 0; j < rows; ++j) {
        labels_[i + j] = static_cast<std::int32_t>(lane[j] & ((Key{1} << cluster_bits) - 1));
      }
    }
  }

  // Returns true if a centroid has changed.
  bool update() {
    const simd::Tag<std::uint32_t> d;
    const simd::Tag<std::int32_t> counts;
    const auto one = hn::Set(d, 1);
    std::fill(ones_, sizes_ + clusters_, 0);
    for (i64 i = 0; i < count_; ++i) {
      ++sizes_[labels_[i]];
      std::int32_t* const ones = ones_ + labels_[i] * halves * 32;
      for (i64 half = 0; half < halves; ++half) {
        const auto word =
            hn::Set(d, static_cast<std::uint32_t>(codes_[i] >> 16 * half >> 16 * half));
        for (i64 r = 0; r < 32; r += simd::lanes<std::uint32_t>) {
          const auto shift = hn::Iota(d, static_cast<std::uint32_t>(r));
          const auto bit = hn::BitCast(counts, hn::And(hn::Shr(word, shift), one));
          std::int32_t* const at = ones + half * 32 + r;
          hn::StoreU(hn::Add(hn::LoadU(counts, at), bit), counts, at);
        }
      }
    }
    bool changed = false;
    for (i64 c = 0; c < clusters_; ++c) {
      if (sizes_[c] == 0) continue;
      Word code = 0;
      for (i64 r = 0; r < halves * 32; ++r) {
        code |= Word{2 * ones_[c * halves * 32 + r] > sizes_[c]} << r;
      }
      changed = changed || code != centroids_[c];
      centroids_[c] = code;
    }
    return changed;
  }

  const Word* codes_;
  i64 count_, clusters_;
  std::int32_t* labels_;
  Scratch<std::int32_t> buffer_;
  Word* centroids_;
  std::int32_t *ones_, *sizes_;
};

template <class Word, class T>
void cluster_item(const QueryClusters<T>& p, const TurnedPlanes<T>& planes, i64 b, i64 h,
                  std::int32_t* labels) {
  const i64 count = length_of(p.lengths, b, p.N());
  std::fill(labels + count, labels + p.N(), 0);
  if (count == 0) return;
  const i64 padded = (count + block_of<Word> - 1) / block_of<Word> * block_of<Word>;
  const Scratch<std::make_signed_t<Word>> codes(padded);
  Word* const words = reinterpret_cast<Word*>(codes.data());
  std::fill(words + count, words + padded, Word{0});
  each_hash(p, planes, b, h,
            [&](i64 i, std::uint64_t code) { words[i] = static_cast<Word>(code); });
  HammingMeans<Word>(words, count, p.clusters, labels)
      .run(p.positions + b * p.clusters, p.iterations);
}

}  // namespace

template <class Device, class T>
void ClusterKernels<Device, T>::cluster(const Device&, const QueryClusters<T>& p,
                                        View<std::int32_t, 3> labels, View<i64, 3> hashes) {
  const TurnedPlanes<T> planes(p);
  parallel_for(p.B() * p.H(), [&](i64 piece) {
    const i64 b = piece / p.H(), h = piece % p.H();
    if (hashes.data != nullptr) {
      for (i64 i = 0; i < p.N(); ++i) hashes(b, h, i) = 0;
      each_hash(p, planes, b, h,
                [&](i64 i, std::uint64_t code) { hashes(b, h, i) = static_cast<i64>(code); });
    }
    if (labels.data == nullptr || p.N() == 0) return;
    const auto cluster = p.bits() <= 32 ? cluster_item<std::uint32_t, T>
                                        : cluster_item<std::uint64_t, T>;
    cluster(p, planes, b, h, &labels(b, h, 0));
  });
}

Members::Members(const std::int32_t* labels, i64 count, i64 clusters)
    : buffer_(clusters + 1 + count), begin_(buffer_.data()), order_(begin_ + clusters + 1) {
  std::fill(begin_, order_, 0);
  for (i64 i = 0; i < count; ++i) ++begin_[labels[i] + 1];
  for (i64 c = 0; c < clusters; ++c) begin_[c + 1] += begin_[c];
  for (i64 i = 0; i < count; ++i) order_[begin_[labels[i]]++] = std::int32_t(i);
  // Each begin has moved to its end, which is the next one's begin.
  for (i64 c = clusters; c > 0; --c) begin_[c] = begin_[c - 1];
  begin_[0] = 0;
}

template <class T>
void sum_of_rows(const View<const T, 4>& x, i64 b, i64 h, const std::int32_t* rows, i64 count,
                 double factor, T* to) {
  constexpr i64 strip = 64, ahead = 4;
  const i64 width = x.size(3), step = x.stride(3);
  for (i64 begin = 0; begin < width; begin += strip) {
    const i64 columns = std::min(strip, width - begin);
    double sum[strip] = {};
    for (i64 i = 0; i < count; ++i) {
      const T* const row = &x(b, rows[i], h, begin);
      if (i + ahead < count) prefetch(&x(b, rows[i + ahead], h, begin), columns * step);
      if (step == 1) {
        for (i64 e = 0; e < columns; ++e) sum[e] += double(row[e]);
      } else {
        for (i64 e = 0; e < columns; ++e) sum[e] += double(row[e * step]);
      }
    }
    for (i64 e = 0; e < columns; ++e) to[begin + e] = T(factor * sum[e]);
  }
}

template struct ClusterKernels<Cpu, float>;
template struct ClusterKernels<Cpu, double>;
template void sum_of_rows(const View<const float, 4>&, i64, i64, const std::int32_t*, i64, double,
                          float*);
template void sum_of_rows(const View<const double, 4>&, i64, i64, const std::int32_t*, i64, double,
                          double*);

}  // namespace weft
