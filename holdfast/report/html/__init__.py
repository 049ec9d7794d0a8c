"""What pages are made of: markup that data can't break, the skeleton, charts, tables, images."""
