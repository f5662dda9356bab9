/* The figures, drawn by gnuplot from the tables. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/paper.h"
#include "harness/program.h"

/* script: in the folder results. variables: what it is told besides csv and out. */
typedef struct drawing {
  paper_item item;
  const char *script, *variables;
} drawing;

static const drawing drawings[] = {
    {PAPER_TABLE1, "table1.gp", ""},
    {PAPER_FIGURE3, "paper_utilization.gp",
     "heading='Utilisation over strategies: OPT-1.3B, 4 GPUs'; xname='strategy'"},
    {PAPER_FIGURE4, "paper_utilization.gp", "heading='Utilisation over GPUs: OPT-13B, LR'; xname='GPUs'"},
    {PAPER_FIGURE5, "paper_footprint.gp", ""},
    {PAPER_FIGURE6, "figure6.gp", ""},
    {PAPER_FIGURE10, "paper_bars.gp",
     "panels='OPT-1.3B Vicuna-13B GPT-NeoX-20B'; xname='strategy'; heading='Strategies, 4 GPUs'"},
    {PAPER_FIGURE11, "paper_bars.gp",
     "panels='OPT-13B Vicuna-13B GPT-NeoX-20B'; xname='GPUs'; heading='Scaling out, LR'"},
    {PAPER_FIGURE12, "paper_bars.gp",
     "panels='FSDP DeepSpeed Colossal-AI'; xname='model'; heading='Platforms, LR, 4 GPUs'"},
    {PAPER_FIGURE13, "paper_batches.gp",
     "panels='OPT-1.3B OPT-13B GPT-NeoX-20B'; heading='Batch sizes, LR, 4 GPUs'"},
    {PAPER_FIGURE14, "paper_memory.gp", ""},
};

static void show(FILE *errors) {
  rewind(errors);
  for (int c; (c = fgetc(errors)) != EOF;) fputc(c, stderr);
}

/* What it says is shown when it fails: it warns of every panel for which the paper has no numbers. */
static int run_gnuplot(const char *folder, const char *settings, const char *script) {
  FILE *errors = tmpfile();
  fflush(NULL);
  pid_t process = fork();
  if (process == 0) {
    if (chdir(folder) != 0 || (errors && dup2(fileno(errors), STDERR_FILENO) < 0)) _exit(126);
    execlp("gnuplot", "gnuplot", "-e", settings, script, (char *)NULL);
    _exit(errno == ENOENT ? 127 : 126);
  }
  int status = -1;
  while (process > 0 && waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  status = process > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (errors && status != 0) show(errors);
  if (errors) fclose(errors);
  return status;
}

/* The folder of the scripts. */
static const char *root_folder(void) {
  const char *root = getenv("LAKEBED_ROOT");
  return root && *root ? root : ".";
}

/* 0; 127: there is no gnuplot; else it failed, which is said. */
static int draw(const paper_settings *settings, const char *scripts, const drawing *figure,
                const char *kind) {
  const char *name = paper_item_name(figure->item);
  char *said = NULL, *folder = realpath(settings->folder, NULL);
  int status = -1;
  if (!folder || asprintf(&said, "csv='%s/%s.csv'; out='%s/%s.%s'; %s", folder, name, folder, name, kind,
                          figure->variables) < 0)
    said = NULL;
  if (folder && strchr(folder, '\'')) {
    program_complain("figures cannot be drawn into a folder with a quote in its name: %s", folder);
  } else if (said) {
    status = run_gnuplot(scripts, said, figure->script);
    if (status != 0 && status != 127)
      program_complain("%s.%s could not be drawn by %s", name, kind, figure->script);
  }
  free(said);
  free(folder);
  return status;
}

static bool has_data(const paper_settings *settings, paper_item item) {
  char *path;
  if (asprintf(&path, "%s/%s.csv", settings->folder, paper_item_name(item)) < 0) return false;
  bool there = access(path, R_OK) == 0;
  free(path);
  return there;
}

/* Where the scripts should be; to be freed. NULL: they are not there, which is said. */
static char *find_scripts(void) {
  char *folder, *common = NULL;
  if (asprintf(&folder, "%s/results", root_folder()) < 0) return NULL;
  bool there = asprintf(&common, "%s/paper_common.gp", folder) >= 0 && access(common, R_OK) == 0;
  if (!there) {
    program_complain(
        "the figures are not drawn: their scripts are not in %s; LAKEBED_ROOT names the folder that "
        "Lakebed lies in",
        folder);
    free(folder);
    folder = NULL;
  }
  free(common);
  return folder;
}

bool paper_draw(const paper_settings *settings) {
  static const char *const kinds[] = {"svg", "png"};
  char *scripts = find_scripts();
  bool drawn = scripts, absent = false;
  for (size_t i = 0; drawn && !absent && i < 2 * sizeof drawings / sizeof *drawings; i++) {
    const drawing *figure = &drawings[i / 2];
    if (!settings->wanted[figure->item] || !has_data(settings, figure->item)) continue;
    int status = draw(settings, scripts, figure, kinds[i % 2]);
    absent = status == 127;
    drawn = status == 0 || absent;
  }
  if (absent) {
    program_complain(
        "no gnuplot here (Debian's package gnuplot-nox): the figures are not drawn, their data are in %s",
        settings->folder);
  }
  free(scripts);
  return drawn;
}
