/* The workloads of the GMLake paper's evaluation (ASPLOS'24, arXiv 2401.08156), as far as it tells them: 76
 * fine-tuning runs. docs/paper.md says what is the paper's and what is ours. */
#ifndef LAKEBED_HARNESS_PAPER_GRID_H
#define LAKEBED_HARNESS_PAPER_GRID_H

#include <stdbool.h>
#include <stddef.h>

/* The figure whose workload it is. */
typedef enum paper_part {
  PAPER_STRATEGIES, /* Figure 10 */
  PAPER_GPUS,       /* Figure 11 */
  PAPER_PLATFORMS,  /* Figure 12 */
  PAPER_BATCHES     /* Figure 13 */
} paper_part;

typedef struct paper_workload {
  paper_part part;
  const char *model; /* as 'lakebed trace generate finetune' names it */
  const char *strategy, *platform;
  unsigned gpus, batch; /* batch: sequences a GPU */
  /* Read off the authors' plots, about +-1 GB; 0: the paper does not say. */
  double pytorch_gb, gmlake_gb;
  double pytorch_utilization; /* Figures 3 and 4; 0: not there */
} paper_workload;

enum { PAPER_WORKLOADS = 76, PAPER_SEQUENCE = 512, PAPER_ITERATIONS = 8, PAPER_LINE = 160 };

extern const paper_workload paper_workloads[PAPER_WORKLOADS];

/* "OPT-1.3B": as the paper writes a model; "DeepSpeed". */
const char *paper_model_name(const char *model);
const char *paper_platform_name(const char *platform);
/* "finetune --model opt-1.3b --strategy LR ...": what 'lakebed trace generate' is told. */
void paper_workload_line(const paper_workload *workload, char line[PAPER_LINE]);

#endif
