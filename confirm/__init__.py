"""Shipped results whose code is in no history, repeated in part by code that is."""
