# SPDX-License-Identifier: MIT
"""A PyTorch program that knows nothing of sdcguard: one matrix product or one training step, its results to a file.

usage: torch_step.py matmul|step OUT.pt            run it (preloaded or not)
       torch_step.py compare matmul|step UNGUARDED AGAIN OBSERVE REPAIR     judge four runs, one JSON object on stdout

Bounds: under observe every bit is the unguarded run's (where two unguarded runs agree). Under repair a product is
rounded from another FP32 sum, so an entry may differ by both roundings and both accumulations:
2^-8 (|x| + |y|) + 2 c_max 2^-23 sum|A||B|, c_max = 1.5 k + k/64 + 16 (kernels/MATH.md, the worst tensor core). A
training step's distance to the same step in FP64 may at most double: two rounding paths of the same length.
"""
import json
import sys

import torch

SEED = 20


def operands(case):
    generator = torch.Generator().manual_seed(SEED)
    m, n, k = case
    x = torch.randn(m, k, generator=generator, dtype=torch.float64).to(torch.bfloat16)
    w = torch.randn(n, k, generator=generator, dtype=torch.float64).to(torch.bfloat16)
    return x, w


CASES = [(1024, 4096, 1024), (509, 769, 1021), (2048, 2048, 2048)]


def matmul():
    results = {}
    for case in CASES:
        x, w = operands(case)
        results["x".join(map(str, case))] = torch.nn.functional.linear(x.cuda(), w.cuda()).cpu()
    return results


def model(dtype):
    torch.manual_seed(SEED)
    layers = torch.nn.Sequential(torch.nn.Embedding(512, 256), torch.nn.LayerNorm(256), torch.nn.Linear(256, 1024),
                                 torch.nn.GELU(), torch.nn.Linear(1024, 256), torch.nn.LayerNorm(256),
                                 torch.nn.Linear(256, 512))
    return layers.to(dtype)


def step(device="cuda", autocast=True, dtype=torch.float32):
    net = model(dtype).to(device)
    generator = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(512, (8, 128), generator=generator).to(device)
    targets = torch.randint(512, (8, 128), generator=generator).to(device)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
        loss = torch.nn.functional.cross_entropy(net(tokens).flatten(0, 1), targets.flatten())
    loss.backward()
    results = {"loss": loss.detach().cpu()}
    results.update({f"gradient {name}": p.grad.cpu() for name, p in net.named_parameters()})
    with torch.no_grad():  # plain SGD: torch.optim costs seconds of import in each of the runs
        for p in net.parameters():
            p -= 0.1 * p.grad
    results.update({f"weight {name}": p.detach().cpu() for name, p in net.named_parameters()})
    return results


def same_bits(a, b):
    def raw(tensor):
        return tensor.reshape(-1).contiguous().view(torch.uint8)

    return all(a[name].dtype == b[name].dtype and torch.equal(raw(a[name]), raw(b[name])) for name in a)


def compare_matmul(unguarded, repair):
    """Largest difference over its bound, and how many entries differ."""
    worst, differing, entries = 0.0, 0, 0
    for case in CASES:
        x, w = (t.double().abs().cuda() for t in operands(case))
        k = case[2]
        c_max = 1.5 * k + k / 64 + 16
        magnitude = (x @ w.T).cpu()
        name = "x".join(map(str, case))
        one, two = unguarded[name].double(), repair[name].double()
        bound = 2.0**-8 * (one.abs() + two.abs()) + 2 * c_max * 2.0**-23 * magnitude
        ratio = ((one - two).abs() / bound).max().item()
        worst = ratio if ratio != ratio else max(worst, ratio)
        differing += int((one != two).sum())
        entries += one.numel()
    return {"worst_over_bound": worst, "entries": entries, "differing": differing, "within": worst <= 1}


def compare_step(unguarded, repair):
    exact = step(device="cpu", autocast=False, dtype=torch.float64)

    def distance(run, name):
        gap = (run[name].double() - exact[name]).norm() / exact[name].norm().clamp_min(1e-300)
        return gap.item()

    rows = {name: (distance(unguarded, name), distance(repair, name))
            for name in exact if not name.startswith("weight")}
    worst = max(rows.values(), key=lambda pair: pair[1] / max(pair[0], 2.0**-24))
    return {"distance_unguarded": max(p[0] for p in rows.values()), "distance_repair": max(p[1] for p in rows.values()),
            "worst_ratio": worst[1] / max(worst[0], 2.0**-24),
            "within": all(two <= 2 * max(one, 2.0**-24) for one, two in rows.values())}


def main(arguments):
    if len(arguments) == 2 and arguments[0] in ("matmul", "step"):
        torch.save(matmul() if arguments[0] == "matmul" else step(), arguments[1])
        return 0
    if len(arguments) == 6 and arguments[0] == "compare":
        unguarded, again, observe, repair = (torch.load(path) for path in arguments[2:])
        report = compare_matmul(unguarded, repair) if arguments[1] == "matmul" else compare_step(unguarded, repair)
        report["repeatable"] = same_bits(unguarded, again)
        report["observe_same_bits"] = same_bits(unguarded, observe)
        report["torch"] = torch.__version__
        print(json.dumps(report))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
