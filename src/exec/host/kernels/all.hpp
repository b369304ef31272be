// The kernels behind run_body.
#pragma once

#include "exec/host/kernels/kernels.hpp"

namespace tileway::host {

void copy(const Arguments& arguments);
void cast(const Arguments& arguments);
void transpose(const Arguments& arguments);
void pointwise(const Arguments& arguments);
void matmul(const Arguments& arguments);
void scaled_matmul(const Arguments& arguments);
void matmul_and_more(const Arguments& arguments);
void softmax(const Arguments& arguments);
void layer_norm(const Arguments& arguments);
void rms_norm(const Arguments& arguments);
void reduce_dim(const Arguments& arguments);
void gather_rows(const Arguments& arguments);
void embedding_bag(const Arguments& arguments);
void reduce_ranks(const Arguments& arguments);
void copy_rows(const Arguments& arguments);
void zero_rows(const Arguments& arguments);

}  // namespace tileway::host
