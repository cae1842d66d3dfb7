// The steps of agglomerative attention on a CUDA device, each a kernel (agglomerative.cu);
// agglomerative_cuda.cpp puts them together. Equations: agglomerative.h.
//
// What a chunk hands to the others stands in rows of `width` f64, [B, chunks, width]: (S, U) of the
// references before it, (g, G) of the queries behind it.
#pragma once

#include "ops/attention/agglomerative/agglomerative.h"

namespace weft {

// What becomes of the sums of single chunks.
enum class ChunkSums {
  upwards,    // row c += Σ of the rows below c
  downwards,  // row c += Σ of the rows above c
  total,      // the sum of all, one row for each batch item
};

// (S, U) of each chunk of references. Causal: in the row of the next chunk, and zeros in row 0.
template <class T>
void sum_references(const Cuda&, const Agglomerative<T>&, double* sums);

// `to` may be `from`, but not for the total.
void combine_chunks(const Cuda&, ChunkSums how, std::int64_t B, std::int64_t chunks,
                    std::int64_t width, const double* from, double* to);

// out, from sums as they are saved. Where `after` is not null, the sums behind the only chunk go
// there, which may be `sums` itself.
template <class T>
void write_outputs(const Cuda&, const Agglomerative<T>&, const double* sums, View<T, 4> out,
                   double* after);

// dcq in the place of dzq; (g, G) of each chunk of queries in `totals`. Causal: dn in the place of
// dzk, and the row of totals is that of the chunk before, with zeros in the last one.
template <class T>
void sweep_queries(const Cuda&, const Agglomerative<T>&, const double* sums, View<const T, 4> dout,
                   View<T, 3> dzq, View<T, 3> dzk, double* totals);

// dy, and dck in the place of dzk. `totals`: (g, G) behind each chunk, or of all queries.
template <class T>
void sweep_references(const Cuda&, const Agglomerative<T>&, const double* sums,
                      const double* totals, View<const T, 4> dout, View<T, 3> dzk, View<T, 4> dy);

// dzq and dzk from the dcq and dck that stand there.
template <class T>
void finish_logits(const Cuda&, const Agglomerative<T>&, View<T, 3> dzq, View<T, 3> dzk);

}  // namespace weft
