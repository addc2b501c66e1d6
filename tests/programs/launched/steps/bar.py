"""A loop below a bar of tqdm."""

from pace import end, given, step
from tqdm import tqdm

for _ in tqdm(range(given.max_steps)):
    step()
end()
