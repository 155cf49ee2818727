/* SPDX-License-Identifier: MIT */
/* PTX instructions compute what the host computes; see ptx_values.cu. timeout: 240 */
#include "ptx_values.h"
#include "scenario.h"

static void scalar(void) { CHECK(ptx_values_scalar() == 0); }

int main(int argc, char **argv)
{
    static const struct scenario all[] = {
        {"scalar", scalar, NULL, NULL, 0},
        {"scalar_seed_1", scalar, NULL, "CUDASIM_SEED=1", 0},
    };
    return scenarios_main(argc, argv, all, sizeof all / sizeof *all);
}
