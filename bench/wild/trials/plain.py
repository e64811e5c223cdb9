"""A loop over torch's DataLoader."""
import common
from torch.utils.data import DataLoader

common.train(DataLoader(common.Images(), common.BATCH, num_workers=common.WORKERS), epochs=2)
