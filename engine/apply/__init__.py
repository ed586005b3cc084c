"""What people do with links: lexicons, labels and markup carried over, filters."""
