"""AIPP: pictures as cameras and decoders give them become what a model was trained on, inside the model."""
