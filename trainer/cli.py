"""mx-train: flags into a config, a config into a run. No torch before the flags are parsed."""




# A resumed run may change these: they decide how long, how often and how fast, not what is learned.
CHANGEABLE = {
    "steps", "eval_every", "save_every", "log_every", "keep", "average", "patience", "micro_tokens",
    "compile", "precision", "threshold", "select",
}  # fmt: skip
