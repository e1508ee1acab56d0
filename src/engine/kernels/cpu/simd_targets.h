#pragma once

// Before hwy/foreach_target.h: the instruction sets that are compiled. Between them and plain scalar code there is
// nothing that a machine which trains would have.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
