"""Models by name: embedded, torchvision's, timm's, or from a user's file."""
