"""The block in PyTorch, its inputs, and how far a result is from the float64 one."""

import math

import torch
import torch.nn.functional as F

D, HEADS, HEAD_DIM, FFN = 768, 12, 64, 3072
SHAPES = {
    "gamma1": (D,),
    "beta1": (D,),
    "w_qkv": (D, 3 * D),
    "b_qkv": (3 * D,),
    "w_attn": (D, D),
    "b_attn": (D,),
    "gamma2": (D,),
    "beta2": (D,),
    "w_fc": (D, FFN),
    "b_fc": (FFN,),
    "w_proj": (FFN, D),
    "b_proj": (D,),
}


def make_inputs(seq, seed):
    """x (seq, D) and the one weight buffer, in the challenge's ranges, with biases that are not zero."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    ranges = {"gamma": (0.8, 1.2), "beta": (-0.1, 0.1)}
    parts = []
    for name, shape in SHAPES.items():
        part = torch.empty(math.prod(shape), device="cuda")
        bounds = ranges.get(name[:-1])
        parts.append(part.uniform_(*bounds, generator=generator) if bounds else part.normal_(0, 0.02, generator=generator))
    x = torch.empty(seq, D, device="cuda").uniform_(-1, 1, generator=generator)
    return x, torch.cat(parts)


def unpack(weights):
    """The twelve parameters as views of the buffer."""
    parts = weights.split([math.prod(shape) for shape in SHAPES.values()])
    return {name: part.view(shape) for (name, shape), part in zip(SHAPES.items(), parts)}


def prepared(parameters, dtype):
    """Matrices and linear biases cast once; what LayerNorm needs stays fp32."""
    return {name: p if name[:-1] in ("gamma", "beta") else p.to(dtype) for name, p in parameters.items()}


def fused(q, k, v):
    """Attention of (HEADS, seq, HEAD_DIM)."""
    return F.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def unfused(q, k, v, causal=False, operand=lambda t: t):
    scores = operand(q) @ operand(k).transpose(-2, -1) / math.sqrt(HEAD_DIM)
    if causal:
        scores.masked_fill_(torch.ones_like(scores[0], dtype=torch.bool).triu_(1), -math.inf)
    return operand(torch.softmax(scores, -1)) @ operand(v)


def block(x, p, dtype=None, attention=fused, operand=lambda t: t):
    """The block. With a dtype its products have operands of it; residual stream, LayerNorm and its output stay fp32. `operand`: what they go through first."""

    def linear(a, w, b):
        dtype_ = dtype or a.dtype
        return torch.addmm(b.to(dtype_), operand(a).to(dtype_), operand(w).to(dtype_))

    seq = x.shape[0]
    h = F.layer_norm(x, [D], p["gamma1"], p["beta1"], 1e-5)
    q, k, v = (part.view(seq, HEADS, HEAD_DIM).transpose(0, 1) for part in linear(h, p["w_qkv"], p["b_qkv"]).split(D, -1))
    heads = attention(q, k, v).transpose(0, 1).reshape(seq, D)
    x1 = x + linear(heads, p["w_attn"], p["b_attn"]).to(x.dtype)
    h = F.layer_norm(x1, [D], p["gamma2"], p["beta2"], 1e-5)
    f = F.gelu(linear(h, p["w_fc"], p["b_fc"]), approximate="tanh")
    return x1 + linear(f, p["w_proj"], p["b_proj"]).to(x.dtype)


def reference(x, parameters, batch=1, causal=False, operand=lambda t: t):
    """The block in float64, of as many sequences; the operands of its products go through `operand`."""
    wide = {name: p.double() for name, p in parameters.items()}

    def attention(*qkv):
        q, k, v = (part.reshape(HEADS * batch, -1, HEAD_DIM) for part in qkv)
        return unfused(q, k, v, causal, operand).view(HEADS, -1, HEAD_DIM)

    return block(x.double(), wide, attention=attention, operand=operand)


def tf32(t):
    """Rounded to 11 bits, to nearest, ties to even."""
    bits = t.float().view(torch.int32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).view(torch.float32).double()


def accuracy(out, want, x):
    """Worst error over the challenge's tolerance (1 or less passes), and the relative error of what the block adds to x."""
    error = (out.double() - want).abs()
    worst = (error / (1e-3 + 1e-3 * want.abs())).max().item()
    return {"worst_over_tol": worst, "rel_l2_delta": (error.norm() / (want - x).norm()).item(), "passes": worst <= 1}
