"""A training script for CUDA as people write them: it knows nothing of the npu."""

import argparse
from pathlib import Path
import random
import tempfile

import numpy as np
import torch
import torch.backends.cudnn as cudnn
from torch.cuda.amp import GradScaler, autocast
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default=0, type=int)
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()

torch.manual_seed(1)
random.seed(1)
np.random.seed(1)
use_cuda = not args.no_cuda and torch.cuda.is_available()
assert use_cuda, "this script wants a GPU"
torch.cuda.manual_seed(1)
torch.cuda.manual_seed_all(1)
torch.cuda.set_device(args.gpu)
cudnn.benchmark = True
cudnn.deterministic = True
device = torch.device("cuda" if use_cuda else "cpu")
print("devices", torch.cuda.device_count() > 0, torch.cuda.get_device_name(0), torch.cuda.current_device())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.bn = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.1)
        self.fc = nn.Linear(8 * 9, 4)
        self.register_buffer("steps", torch.zeros(1, device="cuda"))

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv1(x))), 2)
        assert x.is_cuda
        noise = torch.cuda.FloatTensor(x.shape).normal_() * 0
        self.steps += 1
        return self.fc(torch.flatten(self.dropout(x + noise), 1))


dist.init_process_group(backend="nccl", init_method=f"file://{tempfile.mktemp()}", world_size=1, rank=0)
model = Net().cuda(args.gpu)
model = DDP(model, device_ids=[args.gpu])
criterion = nn.CrossEntropyLoss().cuda()
optimizer = optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.9)
scaler = GradScaler()
targets = torch.arange(32) % 4
images = torch.randn(32, 1, 8, 8) * 0.1
for number, target in enumerate(targets.tolist()):  # a bright quarter says which class it is
    images[number, 0, target // 2 * 4 : target // 2 * 4 + 4, target % 2 * 4 : target % 2 * 4 + 4] += 2
loader = DataLoader(TensorDataset(images, targets), batch_size=8, shuffle=True, pin_memory=True)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
stream = torch.cuda.Stream()
losses = []
for _epoch in range(6):
    model.train()
    start.record()
    for data, target in loader:
        data, target = data.cuda(non_blocking=True), target.to(device, non_blocking=True)
        optimizer.zero_grad()
        with autocast():
            output = model(data)
            loss = criterion(output, target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    scheduler.step()
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    losses.append(loss.item())
with torch.cuda.stream(stream), torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    half = torch.mm(torch.ones(2, 2, device="cuda:0"), torch.ones(2, 2).to("cuda"))
assert half.dtype is torch.float16
torch.cuda.current_stream().wait_stream(stream)

path = Path(tempfile.mkdtemp()) / "checkpoint.pt"
torch.save({"state_dict": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
checkpoint = torch.load(path, map_location={"cuda:0": "cuda:1"})
checkpoint = torch.load(path, map_location=f"cuda:{args.gpu}")
restored = Net().to(args.gpu)
restored.load_state_dict(checkpoint["state_dict"])
restored.eval()
model.eval()
with torch.no_grad():
    accuracy = (restored(images.cuda()).argmax(1).cpu() == targets).float().mean().item()
    assert torch.equal(restored(images.cuda()), model.module(images.cuda()))
tensor = dist.new_group([0]) and torch.ones(1).cuda()
dist.all_reduce(tensor)
dist.broadcast(tensor, 0)
print("bf16", torch.cuda.get_device_capability() >= (8, 0) or torch.cuda.is_bf16_supported())
generator = torch.Generator(device="cuda")
generator.manual_seed(3)
sample = torch.rand(3, generator=generator, device="cuda")
scripted = torch.jit.script(F.relu)(sample)
torch.cuda.nvtx.range_push("tail")
torch.cuda.nvtx.range_pop()
print("memory", torch.cuda.memory_allocated() > 0, torch.cuda.max_memory_allocated() > 0)
torch.cuda.empty_cache()
with torch.device("cuda"):
    assert torch.zeros(2).is_cuda
assert nn.Linear(2, 2, device="cuda").weight.is_cuda
assert torch.tensor([1.0]).new_zeros(2, device="cuda").is_cuda
assert torch.cuda.DoubleTensor([1.0]).dtype is torch.float32
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as prof:
    scripted.sum().backward() if scripted.requires_grad else scripted.sum()
print(len(prof.key_averages()) > 0)
dist.destroy_process_group()
print("LOSS", losses[0], losses[-1], "ACCURACY", accuracy, "DEVICE", sample.device)
