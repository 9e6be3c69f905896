"""Files on disk become arrays: what each data set is, where it comes from, and how it is read with care."""
