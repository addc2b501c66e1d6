"""Import names with all distributions that provide them: an environment without any of these cannot
import the name. Other names may come from any package."""

from collections.abc import Mapping
from types import MappingProxyType

# fmt: off
_SAME = (
    "accelerate", "bitsandbytes", "boto3", "catboost", "datasets", "deepspeed", "diffusers",
    "einops", "evaluate", "flax", "gensim", "h5py", "librosa", "lightgbm", "matplotlib",
    "networkx", "nltk", "numba", "numpy", "omegaconf", "openai", "optax", "optuna", "pandas",
    "peft", "plotly", "polars", "pyarrow", "ray", "safetensors", "scipy", "seaborn",
    "sentencepiece", "soundfile", "spacy", "statsmodels", "sympy", "timm", "tokenizers",
    "torch", "torchao", "torchaudio", "torchdata", "torchmetrics", "torchtune", "torchvision",
    "tqdm", "transformers", "trl", "unsloth", "vllm", "wandb", "xformers", "zstandard",
)
# fmt: on

DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{name: (name,) for name in _SAME},
        "Crypto": ("pycryptodome", "pycrypto"),
        "PIL": ("pillow", "pillow-simd"),
        "bs4": ("beautifulsoup4",),
        "composer": ("mosaicml",),
        "cv2": (
            "opencv-python",
            "opencv-python-headless",
            "opencv-contrib-python",
            "opencv-contrib-python-headless",
        ),
        "dateutil": ("python-dateutil",),
        "dotenv": ("python-dotenv",),
        "flash_attn": ("flash-attn",),
        "huggingface_hub": ("huggingface-hub",),
        "hydra": ("hydra-core",),
        "jwt": ("pyjwt",),
        "mlflow": ("mlflow", "mlflow-skinny"),
        "pynvml": ("nvidia-ml-py", "pynvml", "nvidia-ml-py3"),
        "pytorch_lightning": ("pytorch-lightning", "lightning"),
        "sentence_transformers": ("sentence-transformers",),
        "skimage": ("scikit-image",),
        "sklearn": ("scikit-learn", "scikit-learn-intelex"),
        "streaming": ("mosaicml-streaming",),
        "tensorboard": ("tensorboard", "tb-nightly"),
        "tensorboardX": ("tensorboardx",),
        "umap": ("umap-learn",),
        "xgboost": ("xgboost", "xgboost-cpu"),
        "yaml": ("pyyaml",),
    }
)
"""The normalised distributions that provide an import name; the first is the one to install."""
