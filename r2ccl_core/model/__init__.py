"""The values that everything else uses: a cluster and its health, a collective, a schedule; and their files."""
