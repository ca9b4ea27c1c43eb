"""PPO's update, and the losses of GRPO and online DPO beside it: tensors in, weights out."""
