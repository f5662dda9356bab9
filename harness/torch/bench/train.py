"""Trains a model with random weights for some steps and prints a JSON line: an ordinary PyTorch script, which
knows nothing of Lakebed.

    python train.py --model opt-1.3b --strategy LR --batch 16 --sequence 512 --steps 20
    python -m lakebed --policy aliasheap train.py --model opt-1.3b --strategy LR ...

Strategies: N (none: all weights are trained), L (LoRA), R (activations are recomputed), O (optimizer on the host).
"""

import argparse
import gc
import json
import random
import time

import torch

LANGUAGE_MODELS = ("opt-1.3b", "gpt2-xl", "gpt-neox-20b", "vicuna-13b", "opt-tiny")
VISION_MODELS = ("convnext-base",)

_LORA_TARGETS = {
    "opt-1.3b": ["q_proj", "v_proj", "k_proj", "out_proj", "fc1", "fc2"],
    "opt-tiny": ["q_proj", "v_proj", "k_proj", "out_proj", "fc1", "fc2"],
    "gpt2-xl": ["c_attn", "c_proj", "c_fc"],
    "gpt-neox-20b": ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"],
    "vicuna-13b": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}


def _configuration(name):
    from transformers import GPT2Config, GPTNeoXConfig, LlamaConfig, OPTConfig

    if name == "opt-1.3b":
        return OPTConfig(hidden_size=2048, num_hidden_layers=24, ffn_dim=8192, num_attention_heads=32,
                         vocab_size=50272, max_position_embeddings=2048, word_embed_proj_dim=2048)
    if name == "opt-tiny":
        return OPTConfig(hidden_size=512, num_hidden_layers=4, ffn_dim=2048, num_attention_heads=8,
                         vocab_size=50272, max_position_embeddings=2048, word_embed_proj_dim=512)
    if name == "gpt2-xl":
        return GPT2Config(n_embd=1600, n_layer=48, n_head=25)
    if name == "gpt-neox-20b":
        return GPTNeoXConfig(hidden_size=6144, num_hidden_layers=44, intermediate_size=24576,
                             num_attention_heads=64, vocab_size=50432)
    return LlamaConfig(hidden_size=5120, num_hidden_layers=40, intermediate_size=13824, num_attention_heads=40,
                       vocab_size=32000)


def _language_model(name, strategy):
    from transformers import AutoModelForCausalLM

    configuration = _configuration(name)
    configuration.use_cache = False
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(configuration)
        if "L" in strategy:
            from peft import LoraConfig, get_peft_model

            lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=_LORA_TARGETS[name],
                              task_type="CAUSAL_LM")
            model = get_peft_model(model, lora, autocast_adapter_dtype=False)
    if "R" in strategy:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if "L" in strategy:
            model.enable_input_require_grads()
    return model


def _vision_model():
    from torchvision.models import convnext_base

    with torch.device("meta"):
        return convnext_base(weights=None)


class _HostOptimizer:
    """Gradients go to the host, parameters come back: the traffic of an offloaded optimizer."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.host = [torch.empty(p.shape, dtype=p.dtype, device="cpu") for p in parameters]

    def step(self):
        for parameter, host in zip(self.parameters, self.host):
            if parameter.grad is not None:
                host.copy_(parameter.grad.float())
                parameter.data.add_(host.to(parameter.device), alpha=-0.1)

    def zero_grad(self, set_to_none=True):
        for parameter in self.parameters:
            parameter.grad = None


def _materialise(model):
    """Random weights, the same on every run; what is computed and not drawn is computed anew."""
    model.to_empty(device="cuda")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "norm1.weight", "norm2.weight")) or "layer_norm.weight" in name:
                parameter.fill_(1)
            else:
                parameter.uniform_(-0.02, 0.02)
        for name, buffer in model.named_buffers():
            buffer.fill_(1 if buffer.dtype == torch.bool else 0)
            if name.endswith("inv_freq"):
                size = buffer.shape[0]
                buffer.copy_(1.0 / 10000 ** (torch.arange(size, device=buffer.device, dtype=torch.float32) / size))
    for module in model.modules():
        if hasattr(module, "original_inv_freq"):
            module.original_inv_freq = module.inv_freq.clone()
    return model


def _sequence_length(options):
    if not options.vary:
        return options.sequence
    longest = max(random.lognormvariate(5.3, 0.6) for _ in range(options.batch))
    return max(64, min(options.sequence, int(longest)))


def _language_loss(model, options):
    ids = torch.randint(0, 30000, (options.batch, _sequence_length(options)), device="cuda")
    loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
    return loss, ids.numel()


def _vision_loss(model, options):
    # Few sizes: convolutions of a size not seen before take seconds to plan.
    side = 32 * int(options.sequence / 32 * random.choice((0.5, 0.625, 0.75, 1) if options.vary else (1,)))
    images = torch.rand(options.batch, 3, side, side, device="cuda")
    labels = torch.randint(0, 1000, (options.batch,), device="cuda")
    return torch.nn.functional.cross_entropy(model(images).float(), labels), options.batch * side * side


class Training:
    """A model, its optimizer, and steps."""

    def __init__(self, options):
        self.options = options
        random.seed(options.seed)
        torch.manual_seed(options.seed)
        torch.set_default_dtype(torch.bfloat16)
        vision = options.model in VISION_MODELS
        self.loss = _vision_loss if vision else _language_loss
        model = _vision_model() if vision else _language_model(options.model, options.strategy)
        self.model = _materialise(model).train()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        if "O" in options.strategy:
            self.optimizer = _HostOptimizer(self.parameters)
        else:
            self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5)

    def step(self):
        """One step; its loss, and how many tokens (pixels) it took."""
        loss, count = self.loss(self.model, self.options)
        loss.backward()
        if "O" not in self.options.strategy:
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach()), count


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", choices=LANGUAGE_MODELS + VISION_MODELS, default="opt-1.3b")
    parser.add_argument("--strategy", default="N")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--sequence", type=int, default=512, help="tokens; of images the longest side in pixels")
    parser.add_argument("--vary", action="store_true", help="another length at every step, at most --sequence")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--deterministic",
        nargs="?",
        choices=("strict", "tolerant"),
        const="strict",
        help="algorithms that give the same bits again; strict, which is the default: an operation that has none fails; "
        "tolerant: it takes another, as fused attention then does",
    )
    parser.add_argument(
        "--attention",
        choices=("fused", "plain"),
        default="fused",
        help="plain: with --deterministic, without fused kernels",
    )
    return parser.parse_args(arguments)


def make_deterministic(strict=True, plain_attention=False):
    """The environment must have CUBLAS_WORKSPACE_CONFIG=:4096:8 before CUDA is initialised."""
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.enable_cudnn_sdp(False)
    if plain_attention:
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)


def run(options, after_step=None):
    """Trains; a dict of what came out. after_step(number) is called after each step."""
    if options.deterministic:
        make_deterministic(options.deterministic == "strict", options.attention == "plain")
    training = Training(options)
    losses, milliseconds, counts = [], [], []
    for number in range(options.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        loss, count = training.step()
        torch.cuda.synchronize()
        milliseconds.append(round((time.perf_counter() - begin) * 1e3, 3))
        losses.append(loss)
        counts.append(count)
        if after_step:
            after_step(number)
    del training
    gc.collect()
    return {"losses": losses, "step_ms": milliseconds, "counts": counts}


def main():
    options = options_of(None)
    result = vars(options) | run(options)
    result["reserved_peak"] = torch.cuda.max_memory_reserved()
    result["allocated_peak"] = torch.cuda.max_memory_allocated()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
