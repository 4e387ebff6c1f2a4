"""Other packages that people use with remargin: our losses in their trainers, our models in their evaluations."""
