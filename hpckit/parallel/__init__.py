"""Training on several devices, in torch: for users' scripts and hpckit's workloads.

Never imported by hpckit's commands, which must start without torch.
"""
