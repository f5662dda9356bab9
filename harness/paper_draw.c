/* The figures, drawn by gnuplot from the tables. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/output_file.h"
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

static void copy_all(int from, FILE *to) {
  char bytes[4096];
  ssize_t count;
  while ((count = read(from, bytes, sizeof bytes)) > 0 || (count < 0 && errno == EINTR))
    if (count > 0) fwrite(bytes, 1, (size_t)count, to);
}

/* Its standard output goes to picture. What it says is shown when it fails: it warns of every panel for which
 * the paper has no numbers. */
static int run_gnuplot(const char *folder, const char *settings, const char *script, FILE *picture) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  FILE *errors = tmpfile();
  fflush(NULL);
  pid_t process = fork();
  if (process == 0) {
    if (chdir(folder) != 0 || dup2(ends[1], STDOUT_FILENO) < 0 ||
        (errors && dup2(fileno(errors), STDERR_FILENO) < 0))
      _exit(126);
    execlp("gnuplot", "gnuplot", "-e", settings, script, (char *)NULL);
    _exit(errno == ENOENT ? 127 : 126);
  }
  close(ends[1]);
  if (process > 0) copy_all(ends[0], picture);
  close(ends[0]);
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

/* The picture in a file of this path, by way of gnuplot's standard output: gnuplot itself would not say that
 * it cannot be written whole. *absent: there is no gnuplot; every other failure is said. */
static exit_status draw_to(const char *path, const char *scripts, const char *settings, const drawing *figure,
                           bool *absent) {
  FILE *picture = output_open(path);
  if (!picture) return EXIT_STATUS_USAGE;
  const int status = run_gnuplot(scripts, settings, figure->script, picture);
  *absent = status == 127;
  if (status == 0) return output_close(picture, path, true) ? EXIT_STATUS_DONE : EXIT_STATUS_USAGE;
  output_abandon(picture, path);
  if (*absent) return EXIT_STATUS_DONE;
  program_complain("%s could not be drawn by %s", path, figure->script);
  return EXIT_STATUS_CHECK_FAILED;
}

static exit_status draw(const paper_settings *settings, const char *scripts, const drawing *figure,
                        const char *kind, bool *absent) {
  const char *name = paper_item_name(figure->item);
  char *said = NULL, *path = NULL, *folder = realpath(settings->folder, NULL);
  exit_status status = EXIT_STATUS_CHECK_FAILED;
  /* The scripts take the kind from the end of 'out'. */
  if (folder &&
      asprintf(&said, "csv='%s/%s.csv'; out='|cat #.%s'; %s", folder, name, kind, figure->variables) < 0)
    said = NULL;
  if (asprintf(&path, "%s/%s.%s", settings->folder, name, kind) < 0) path = NULL;
  if (folder && strchr(folder, '\'')) {
    program_complain("figures cannot be drawn into a folder with a quote in its name: %s", folder);
  } else if (said && path) {
    status = draw_to(path, scripts, said, figure, absent);
  }
  free(said);
  free(path);
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

exit_status paper_draw(const paper_settings *settings) {
  static const char *const kinds[] = {"svg", "png"};
  char *scripts = find_scripts();
  exit_status status = scripts ? EXIT_STATUS_DONE : EXIT_STATUS_CHECK_FAILED;
  bool absent = false;
  for (size_t i = 0; status == EXIT_STATUS_DONE && !absent && i < 2 * sizeof drawings / sizeof *drawings;
       i++) {
    const drawing *figure = &drawings[i / 2];
    if (!settings->wanted[figure->item] || !has_data(settings, figure->item)) continue;
    status = draw(settings, scripts, figure, kinds[i % 2], &absent);
  }
  if (absent) {
    program_complain(
        "no gnuplot here (Debian's package gnuplot-nox): the figures are not drawn, their data are in %s",
        settings->folder);
  }
  free(scripts);
  return status;
}
