"""A loop that prints its loss, as nanoGPT does, and tells nobody how many steps it will take."""

from pace import end, given, step

for number in range(given.max_steps):
    step()
    if number % 10 == 0:
        print(f"iter {number}: loss {2.5 / (number + 1):.4f}, time 30.00ms, mfu 7.05%", flush=True)
end()
