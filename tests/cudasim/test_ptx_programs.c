/* SPDX-License-Identifier: MIT */
/* Programs in CUDA C++ compute what the host computes; see ptx_programs.cu. */
#include "ptx_values.h"
#include "scenario.h"

static void functions(void) { CHECK(ptx_functions() == 0); }
static void divergence(void) { CHECK(ptx_divergence() == 0); }
static void lanes(void) { CHECK(ptx_lanes() == 0); }
static void halves(void) { CHECK(ptx_halves() == 0); }
static void atomics(void) { CHECK(ptx_atomics() == 0); }
static void products(void) { CHECK(ptx_products() == 0); }
static void shared(void) { CHECK(ptx_shared() == 0); }

int main(int argc, char **argv)
{
#define BOTH(name)                                                                                                     \
    {#name, name, NULL, NULL, 0}, { #name "_seed_5", name, NULL, "CUDASIM_SEED=5", 0 }
    static const struct scenario all[] = {BOTH(functions), BOTH(divergence), BOTH(lanes), BOTH(halves),
                                          BOTH(atomics),   BOTH(products),   BOTH(shared)};
    return scenarios_main(argc, argv, all, sizeof all / sizeof *all);
}
