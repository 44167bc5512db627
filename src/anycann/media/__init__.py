"""Pixels: pictures in memory, decoding, scaling, cropping, colours, encoding, video. No handles and no return codes: those are `acl`'s."""
