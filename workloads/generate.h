/* Makes event streams: fine-tuning of language models from their description, serving, random and
 * adversarial patterns.
 *
 * A generator emits events one by one into a sink; nothing of the stream is kept. The same
 * options give the same events, on any machine. Every allocation has an id of its own (1, 2, ...), slots are
 * dense and reused as in trace.h, times are 0.
 *
 * The fine-tuning generator runs the training's operations without their arithmetic: modules are called in
 * order, a tape remembers what each saves for its backward, gradients go back along the tape, and storage is
 * freed when its last holder lets go. So lifetimes follow from the model, not from a recording.
 * Sizes of single operations are PyTorch's (ATen, cuDNN attention, FSDP2) where it is the platform;
 * docs/workloads.md has the rules and their sources. Thread-safe: no state outside of a call. */
#ifndef LAKEBED_WORKLOADS_GENERATE_H
#define LAKEBED_WORKLOADS_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/trace.h"

/* Takes the events. recorded_stream is what trace_writer_add wants; event->stream is the dense index, the
 * same number here. Returns TRACE_OK, or a failure with error filled, which ends the generation. */
typedef struct generate_sink {
  trace_status (*add)(void *context, const trace_event *event, uint64_t recorded_stream, trace_error *error);
  void *context;
} generate_sink;

/* How a decoder block is wired. */
typedef enum generate_family {
  GENERATE_OPT,   /* layer norm first, ReLU, biases, learned positions, dropout */
  GENERATE_GPT2,  /* one projection for q, k and v, GELU by elementwise operations, dropout, learned positions
                   */
  GENERATE_NEOX,  /* rotary positions, attention and feed-forward side by side, GELU */
  GENERATE_LLAMA, /* root mean square norm, rotary positions, gated feed-forward, no biases */
  GENERATE_GLM    /* as LLAMA with gate and up in one projection and biases on q, k and v */
} generate_family;

typedef struct generate_model {
  char name[64];
  generate_family family;
  uint32_t hidden, layers, heads;
  uint32_t key_value_heads; /* heads, or a divisor of it */
  uint32_t head_size;       /* hidden / heads in most models */
  uint32_t ffn;             /* width of the feed-forward */
  uint32_t vocabulary;
  uint32_t positions;   /* rows of learned positions; 0: rotary */
  uint32_t rotary_size; /* elements of a head that are rotated; 0: none */
  bool tied_embeddings; /* the output projection is the input embedding */
  bool dropout;         /* the base model drops out, as OPT and GPT-2 do */
} generate_model;

/* "opt-1.3b", "opt-13b", "gpt2-xl", "glm-10b", "vicuna-13b", "gpt-neox-20b"; NULL: no such model. */
const generate_model *generate_model_find(const char *name);
/* The names, ended by NULL. */
const char *const *generate_model_names(void);
/* "opt", "gpt2", "neox", "llama", "glm", ended by NULL; in the order of generate_family. */
const char *const *generate_family_names(void);
/* A decoder of a family: head_size, rotary size, dropout and so on as its models have them. */
void generate_model_describe(generate_model *model, generate_family family, uint32_t hidden, uint32_t layers,
                             uint32_t heads, uint32_t ffn, uint32_t vocabulary);
/* Reads a Hugging Face config.json. TRACE_UNREADABLE, or TRACE_MALFORMED with the key that is missing or
 * wrong. */
trace_status generate_model_read(const char *path, generate_model *model, trace_error *error);
/* Parameters of the model without adapters. */
uint64_t generate_model_parameters(const generate_model *model);

typedef enum generate_precision { GENERATE_BF16, GENERATE_FP16, GENERATE_FP32 } generate_precision;

typedef enum generate_platform {
  GENERATE_FSDP,      /* PyTorch FSDP2, one unit a block; with one rank plain PyTorch */
  GENERATE_DEEPSPEED, /* ZeRO stage 3: flat partitions, fp32 masters, gradient buckets */
  GENERATE_COLOSSALAI /* Gemini: parameters in chunks of one size, fp32 masters */
} generate_platform;

typedef enum generate_sequence_kind {
  GENERATE_SEQUENCE_FIXED,     /* high */
  GENERATE_SEQUENCE_UNIFORM,   /* low to high, one draw an iteration */
  GENERATE_SEQUENCE_LOGNORMAL, /* the longest of a batch's draws of e^(mean + deviation * normal), clamped to
                                  low to high */
  GENERATE_SEQUENCE_LIST       /* list, from the beginning again when it ends */
} generate_sequence_kind;

enum { GENERATE_SEQUENCE_LIST_LIMIT = 64 };

typedef struct generate_sequence {
  generate_sequence_kind kind;
  uint32_t low, high;
  double mean, deviation; /* of the logarithm */
  uint32_t list[GENERATE_SEQUENCE_LIST_LIMIT];
  uint32_t list_count;
} generate_sequence;

/* "512", "uniform:64-512", "lognormal:5.3,0.6:64-512", "336,512,309". False: none of these. */
bool generate_sequence_parse(const char *text, generate_sequence *sequence);

typedef struct generate_finetune_options {
  generate_model model;
  uint32_t batch;             /* sequences a rank and iteration */
  generate_sequence sequence; /* tokens, all of a batch padded to the longest */
  generate_precision precision;
  bool lora, recompute, offload; /* strategies L, R, O; none of them: N */
  uint32_t lora_rank;
  uint32_t world; /* ranks; the stream is that of rank 0 */
  generate_platform platform;
  uint32_t iterations;
  uint64_t seed; /* of a sequence distribution */
} generate_finetune_options;

/* OPT-1.3B, N, batch 8, 512 tokens, bf16, one rank, FSDP, 6 iterations, rank 16 adapters, seed 1. */
void generate_finetune_defaults(generate_finetune_options *options);
/* "N", "LR", "lro": sets lora, recompute and offload. False: another letter, none, one twice, N with others.
 */
bool generate_strategy_parse(const char *text, generate_finetune_options *options);
/* TRACE_OK, TRACE_MALFORMED (an option out of its range, in words), TRACE_NO_MEMORY, or what the sink said.
 * Time and the host's memory go with events and with what is live. */
trace_status generate_finetune(const generate_finetune_options *options, generate_sink sink,
                               trace_error *error);

/* Sizes of random requests. */
typedef enum generate_distribution {
  GENERATE_UNIFORM,    /* low to high */
  GENERATE_LOGUNIFORM, /* as many from each doubling between low and high */
  GENERATE_POWERS      /* powers of two between low and high */
} generate_distribution;

/* Which allocation goes when there is no room for the next. */
typedef enum generate_victim { GENERATE_ANY, GENERATE_OLDEST, GENERATE_NEWEST } generate_victim;

typedef struct generate_random_options {
  generate_distribution distribution;
  uint64_t low, high; /* bytes, 1 to 2^40 */
  uint64_t allocations;
  uint64_t live_bytes; /* never more live, each rounded up to 512 bytes; at least high, rounded */
  generate_victim victim;
  uint32_t streams; /* 1 to 64; one drawn a request */
  uint64_t seed;
} generate_random_options;

/* Log-uniform from 1 byte to 1 GiB, 10,000 allocations, 40 GiB live, any victim, one stream, seed 1. */
void generate_random_defaults(generate_random_options *options);
/* Names in the order of the enums, ended by NULL. */
const char *const *generate_distribution_names(void);
const char *const *generate_victim_names(void);
/* All is freed at the end. Failures as of generate_finetune. Host memory: 40 bytes a live allocation. */
trace_status generate_random(const generate_random_options *options, generate_sink sink, trace_error *error);

/* Requests that leave holes which later ones do not fit. */
typedef enum generate_pattern {
  GENERATE_SAWTOOTH, /* a round fills the memory with blocks of one size and frees all; the next takes a size
                        half as large again */
  GENERATE_CHECKERBOARD, /* fills the memory, frees every second block, asks for blocks a step larger than the
                            holes; frees all */
  GENERATE_STAIRCASE, /* a window of blocks, half of what may live; in turn each goes, every second one first,
                         and one a step larger than all before comes */
  GENERATE_DOUBLING   /* of the blocks that live every second goes, and blocks of twice the size come */
} generate_pattern;

typedef struct generate_adversarial_options {
  generate_pattern pattern;
  uint64_t bytes;      /* of the first blocks */
  uint64_t step_bytes; /* that checkerboards and staircases grow by */
  uint64_t live_bytes; /* never more live */
  uint32_t rounds;     /* of a staircase: times that the window is renewed */
} generate_adversarial_options;

/* Sawtooth, blocks of 4 MiB, steps of 512 KiB, 8 GiB live, 8 rounds. */
void generate_adversarial_defaults(generate_adversarial_options *options);
const char *const *generate_pattern_names(void);
/* All is freed at the end. At most 2^20 blocks live at a time (TRACE_MALFORMED). */
trace_status generate_adversarial(const generate_adversarial_options *options, generate_sink sink,
                                  trace_error *error);

/* How a server keeps keys and values. */
typedef enum generate_cache {
  GENERATE_CACHE_GROWING, /* a tensor a layer and request for keys and one for values, each copied into a
                             larger one when it is full */
  GENERATE_CACHE_BLOCKS   /* blocks of some tokens for all layers, more when they are full */
} generate_cache;

typedef struct generate_serving_options {
  generate_model model;
  generate_precision precision;
  uint32_t requests;
  uint32_t batch;                   /* the most that run at a time */
  uint32_t every;                   /* steps between arrivals, on average; 1: one each step */
  generate_sequence prompt, output; /* tokens of each request, one draw a request */
  generate_cache cache;
  uint32_t block; /* tokens that a cache grows by */
  uint64_t seed;
} generate_serving_options;

/* OPT-1.3B in bf16, 64 requests, 16 at a time, one each 4 steps, prompts log-normal from 16 to 1024, outputs
 * uniform from 16 to 256, growing by 64 tokens, seed 1. */
void generate_serving_defaults(generate_serving_options *options);
const char *const *generate_cache_names(void);
/* Requests join the running batch as they arrive and leave it when they have their tokens (continuous
 * batching); a step computes a token of each. What lives at the end: weights and workspaces. */
trace_status generate_serving(const generate_serving_options *options, generate_sink sink,
                              trace_error *error);

#endif
