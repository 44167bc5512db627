"""The engines that are compared, as data, behind the interface of `anycann.tools.engines.Engine`."""
