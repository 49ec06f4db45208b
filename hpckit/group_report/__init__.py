"""What the GPUs of a user, a group or a cluster did over some time: `hpckit report`."""
