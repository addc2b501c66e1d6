"""An `ssh` that loses the answer to a request, for `SshServer.lose`.

    python lossy_ssh.py FILE WORD ssh ...

Runs ssh. Once WORD has gone through its stdin, it kills ssh when the answer comes, and passes none
of it on; FILE, which counts how often that is to happen, counts down.
"""

import os
import selectors
import subprocess
import sys
from pathlib import Path


def main(file: Path, word: bytes, command: list[str]) -> int:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ssh:
        assert ssh.stdin is not None
        assert ssh.stdout is not None
        seen, armed = b"", False
        with selectors.DefaultSelector() as both:
            both.register(0, selectors.EVENT_READ)
            both.register(ssh.stdout, selectors.EVENT_READ)
            while True:
                for key, _ in both.select():
                    data = os.read(key.fd, 1 << 16)
                    if key.fd == 0 and not data:
                        both.unregister(0)
                        ssh.stdin.close()
                    elif key.fd == 0:
                        seen = (seen + data)[-(1 << 17) :]
                        armed = armed or word in seen
                        ssh.stdin.write(data)
                        ssh.stdin.flush()
                    elif not data:
                        return ssh.wait()
                    elif armed and file.exists():
                        left = int(file.read_text()) - 1
                        file.write_text(f"{left}") if left else file.unlink()
                        ssh.kill()
                        return 255
                    else:
                        os.write(1, data)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2].encode(), sys.argv[3:]))
