// SPDX-License-Identifier: MIT
// Includes the file TPSIM_ISA_BODY once for each instruction set. No #pragma once: every use has
// another body.
//
// The body puts its functions into the namespace TPSIM_ISA and marks each with TPSIM_ISA_TARGET;
// its vectors have TPSIM_ISA_BYTES and TPSIM_ISA_REGISTERS of them are there. Text is included and
// not a template used, because compilers split a vector that is wider than the target of the
// function it is written in, before they inline that function anywhere.
// A body calls nothing that holds a vector and is not marked, and no lambda.
#ifdef TPSIM_ISA_BODY

#include <tpsim/backend/simd/isa.hpp>

#define TPSIM_ISA baseline
#define TPSIM_ISA_BYTES 16
#define TPSIM_ISA_REGISTERS 16
#define TPSIM_ISA_TARGET
#include TPSIM_ISA_BODY
#undef TPSIM_ISA
#undef TPSIM_ISA_BYTES
#undef TPSIM_ISA_REGISTERS
#undef TPSIM_ISA_TARGET

#ifdef TPSIM_HAS_ISAS

#define TPSIM_ISA avx2
#define TPSIM_ISA_BYTES 32
#define TPSIM_ISA_REGISTERS 16
#define TPSIM_ISA_TARGET __attribute__((target("avx2")))
#include TPSIM_ISA_BODY
#undef TPSIM_ISA
#undef TPSIM_ISA_BYTES
#undef TPSIM_ISA_REGISTERS
#undef TPSIM_ISA_TARGET

#define TPSIM_ISA avx512
#define TPSIM_ISA_BYTES 64
#define TPSIM_ISA_REGISTERS 32
#define TPSIM_ISA_TARGET __attribute__((target("avx512f,avx512dq")))
#include TPSIM_ISA_BODY
#undef TPSIM_ISA
#undef TPSIM_ISA_BYTES
#undef TPSIM_ISA_REGISTERS
#undef TPSIM_ISA_TARGET

#endif  // TPSIM_HAS_ISAS
#undef TPSIM_ISA_BODY
#endif  // TPSIM_ISA_BODY
