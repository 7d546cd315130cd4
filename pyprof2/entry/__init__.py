"""Entry points of Skyline and DeepView, run in processes of their own: recorded, timed, tried."""
