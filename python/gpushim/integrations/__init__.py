"""Callbacks, loggers and notebook magics that use gpushim. None imports its library before it is asked for."""
