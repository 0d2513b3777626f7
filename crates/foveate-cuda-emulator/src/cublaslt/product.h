// D = alpha op(A) op(B) + beta C (+ bias per row), column-major, summed in f32.
#pragma once

#include "cublaslt/numbers.h"

struct Operand {
    Type type;
    bool transposed;
    int64_t rows, columns, leading;
    // Elements from one matrix of the batch to the next.
    int64_t stride;
};

struct Product {
    // Of op(A) [m, k], op(B) [k, n].
    int64_t m, n, k, batch;
    Operand a, b, c, d;
    bool tf32;
    float alpha, beta;
    bool bias;
    int64_t bias_stride;
    // Whether sums that several blocks share are added in D's type.
    bool rounds_sums = false;
};

// `c` is read if beta is not 0, and may be `d`.
void multiply(const Product& product, const char* a, const char* b, const char* c, char* d, const char* bias);
