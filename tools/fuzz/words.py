"""Values that the fuzz tests pass to options, meaningful and meaningless ones."""

HOSTILE = (
    "", " ", "-", "--", "-1", "0", "1", "2", "²", "٣", "½", "1e20", "1" * 23, "nan", "inf", "-inf", "1/0", "4/255",
    "0x10", "1_0", "pgd ", "PGD", "pgd,fgsm", "linf", "L2", "l0", "unrestricted", "best(", "best(foolbox:fgsm",
    "best(best(pgd))", "foolbox:", ":fgsm", "a:b", "net.py:good", "net.py:nope", "net.py:number", "net.py:leaves",
    "net.py:pair", "net.py:narrow", "net.py:", "nofile.py:x", "run.toml:x", "npz:images.npz", "npz:", "npz:net.py",
    "npz:folder", "imagefolder:folder", "imagefolder:listed", "imagefolder:net.py", "~nosuchuser/x", "~", ".", "..",
    "/", "/dev/null/x", "/proc/self/mem", "results", "many", "nothing", "net.py", "run.toml", "images.npz",
    "metrics.csv", "x" * 300, "\x1b[31mred", "a\nb", "a\tb", "\u202eabc", "\udc80", "=cmd()", "[bold]", "{}", "%s",
    "*", "demo:x*", "steps=2", "steps=", "=2", "steps=-1", "steps=x", "step_size=0", "step_size=2 epsilon",
    "step_size=inf", "nosuch=1", "epsilon=1", "cuda", "cuda:99", "tpu", "meta", "cpu:7", "fgsm", "pgd", "foolbox:fgsm",
    "torchattacks:fgsm", "art", "foolbox", "second-likely", "random", "99", "MR", "mr", "FR@3", "FR@0", "FR@K", "l2",
    "RA_mean", "D_half", "CTC", "NCov", "a", "b", "no", "simple", "full", "checks", "canary", "local",
)  # fmt: skip
FEW = ("", " ", "-1", "0", "1", "2", "²", "x", "1.5", "nan", "1/2")
COUNTS = {"steps", "restarts", "images", "items", "bootstrap"}  # a large number here is a long run, not a mistake
LONG = {"serve", "quickstart", "test-attack"}
# Left alone: what runs for minutes or for ever, or starts Ray.
NEVER = {"probe", "executor", "workers", "full", "quick", "install_completion", "show_completion"}
# What makes a command short: the small model and images in place of those that are the default.
SMALL = {
    "compare": ("--model", "net.py:good", "--data", "npz:images.npz"),
    "evaluate": ("--models", "net.py:good", "--data", "npz:images.npz"),
}
# First arguments that mean something; options that do, so that a case is not always over at its first.
FIRST = {
    "attacks": ("fgsm", "pgd"),
    "compare": ("fgsm",),
    "evaluate": ("run.toml",),
    "status": ("results", "many"),
    "table": ("results", "many"),
    "curves": ("results", "many"),
    "check": ("results", "many"),
    "rank": ("many", "metrics.csv"),
    "reproduce": ("checks",),
    "report": ("results",),
}
SOUND = {
    "norm": ("linf", "l2", "l1", "l0", "unrestricted"),
    "epsilon": ("4/255", "0.1", "0.5", "0"),
    "target": ("random", "1"),
    "param": ("steps=2", "step_size=0.01", "random_start=yes"),
    "library": ("foolbox", "torchattacks", "art"),
    "attacks": ("foolbox:fgsm", "torchattacks:pgd", "fgsm", "best(foolbox:fgsm)"),
    "limit": ("1", "2", "5"),
    "max_queries": ("1", "3"),
    "batch_size": ("1", "3"),
    "seed": ("0", "7"),
    "shard_size": ("2",),
    "device": ("cpu",),
    "transfer": ("no", "simple", "full"),
    "metric": ("MR", "RA", "OTR", "FR@2", "CTC", "OPT"),
    "budget": ("0.1", "8/255"),
    "model": ("net.py:good", "a"),
    "models": ("net.py:good", "net.py:narrow"),
    "defence": ("a", "b"),
    "out": ("new", "results"),
    "step_size": ("0.01", "2 epsilon"),
    "confidence": ("0", "1"),
    "data": ("npz:images.npz", "imagefolder:folder"),
}
