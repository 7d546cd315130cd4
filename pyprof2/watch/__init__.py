"""Record jobs that run already: the daemon that libkineto asks, and what is made of its answer."""
