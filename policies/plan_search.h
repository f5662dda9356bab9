/* A complete search for a plan below a bound, for some hundred blocks.
 *
 * Any plan can be pushed down until every block rests on the ground or on another one. Such plans are built
 * block by block in ascending order of offsets, so that each block has one possible place: on top of the
 * highest block below it. A branch ends as soon as some moment of time has more left to place than there is
 * room above the lowest place of any of it, or a block could have gone wholly below the one placed. Stretches
 * of time that have nothing left in common are solved by themselves. The scheme is that of "MiniMalloc: A
 * Lightweight Memory Allocator for Hardware-Accelerated Machine Learning" (Moffitt, ASPLOS 2023). */
#ifndef LAKEBED_POLICIES_PLAN_SEARCH_H
#define LAKEBED_POLICIES_PLAN_SEARCH_H

#include "policies/plan.h"

/* Looks for a plan whose peak is at most limit, for at most so many steps. Found: the plan is replaced.
 * OUT_OF_MEMORY, and the plan as it was, when the host has no memory. Optional blocks are put wherever they
 * fit, above all others if need be. */
vmm_status plan_search(plan *made, uint64_t limit, uint64_t effort);

#endif
