"""A training that Hydra configures: from `conf/` beside it, and from the command line."""

import logging
import os
import sys

import hydra
from omegaconf import DictConfig

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config: DictConfig) -> None:
    folder = hydra.core.hydra_config.HydraConfig.get().runtime.output_dir
    assert os.path.isdir(os.path.join(folder, ".hydra"))
    print("lr", config.lr, "layers", config.model.layers, "job", log.name, "main", sys.argv[0])
    print("output", os.path.relpath(folder, hydra.utils.get_original_cwd()).split(os.sep)[0])


if __name__ == "__main__":
    main()
